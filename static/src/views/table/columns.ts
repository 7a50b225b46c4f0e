// The parts of a table: columns that give a row's text on screen, its value in a file, and its sort key.

import { formatBytes, formatCount, formatDuration } from '../../layout/format'
import { formatChange, formatShare } from '../../ui/format'
import { keysOf, numbersToSort, type SortKeys } from './order'

export type Value = string | number | null

export interface Column {
  /** In options and files. */
  name: string
  title: string
  /** What stands after the title: what is cut from the rows. */
  note?: string
  /** The meaning of the numbers, in a sentence. */
  hint: string
  /** Least width in pixels. */
  width: number
  /** Width that it should have before a column of level 3 has any. */
  wanted?: number
  /** Share of the remaining room. */
  grow: number
  /** 1: always shown; 2, 3: dropped where the window is narrow. */
  level: 1 | 2 | 3
  isNumber: boolean
  /** Texts are names of frames ("function  file:line"), which lose their middle where there is little room. */
  isFrame?: boolean
  /** Share of the cell that a bar behind its number fills, 0 to 1. */
  bar?(row: number): number
  text(row: number): string
  /** The text in copies, where that of the cell leaves out what rows have in common. */
  whole?(row: number): string
  /** The tooltip of a cell; null: its text. */
  tip: ((row: number) => string) | null
  keys(rows: Int32Array): SortKeys
  /** Of all rows together; null: there is no total. */
  total: string | null
}

/** A column of a file. Numbers plain, missing ones null. */
export interface Field {
  name: string
  value(row: number): Value
  total: Value
}

export interface Table {
  columns: Column[]
  fields: Field[]
  /** In their own order, which ties keep. */
  rows: Int32Array
  /** Whether a row goes back because nothing in it matches the query. */
  isDim(row: number): boolean
  /** The query that names a row; null: none can. */
  queryOf(row: number): string | null
}

type Shape = Pick<Column, 'name' | 'title' | 'hint' | 'level'> & Partial<Column>

/** A column of numbers; NaN: an empty cell. */
export function numbers(
  shape: Shape,
  of: (row: number) => number,
  write: (value: number) => string,
  total: number | null = null,
): Column {
  return {
    width: 96,
    grow: 0,
    isNumber: true,
    tip: null,
    text: (row) => {
      const value = of(row)
      return Number.isNaN(value) ? '–' : write(value)
    },
    keys: (rows) => {
      // Four times as fast as Float64Array.from on a million rows.
      const values = numbersToSort(rows.length)
      for (let i = 0; i < rows.length; i++) values[i] = of(rows[i])
      return keysOf(values)
    },
    total: total === null ? null : write(total),
    ...shape,
  }
}

export function bytes(shape: Shape, of: (row: number) => number, total: number | null = null): Column {
  return numbers({ tip: (row) => `${formatCount(of(row))} B`, ...shape }, of, formatBytes, total)
}

/** Bytes with their sign: "+1.20 GiB". */
export function changes(shape: Shape, of: (row: number) => number, total: number | null = null): Column {
  return numbers({ tip: (row) => `${formatCount(of(row))} B`, ...shape }, of, formatChange, total)
}

export function counts(shape: Shape, of: (row: number) => number, total: number | null = null): Column {
  return numbers(shape, of, formatCount, total)
}

export function shares(shape: Shape, of: (row: number) => number, whole: number, total: number): Column {
  const bar = (row: number): number => (whole > 0 ? Math.max(0, Math.min(1, of(row) / whole)) : 0)
  return numbers({ width: 78, bar, ...shape }, of, (value) => formatShare(value, whole), total)
}

/** Lengths of time or numbers of events, that are "at least" where `isOpen`. */
export function spans(
  shape: Shape,
  of: (row: number) => number,
  isOpen: (row: number) => boolean,
  unit: 'events' | 'us',
  total: [number, boolean] | null,
): Column {
  const write = (value: number, open: boolean): string =>
    (open ? '≥ ' : '') +
    (unit === 'us'
      ? formatDuration(value)
      : formatCount(value >= 100 ? Math.round(value) : Number(value.toPrecision(3))))
  return {
    ...numbers({ width: 104, ...shape }, of, String),
    text: (row) => {
      const value = of(row)
      return Number.isNaN(value) ? '–' : write(value, isOpen(row))
    },
    total: total && !Number.isNaN(total[0]) ? write(...total) : null,
  }
}

export function field(name: string, value: (row: number) => Value, total: Value = null): Field {
  return { name, value, total }
}

/** For files: NaN is a missing number. */
export function plain(value: number): number | null {
  return Number.isNaN(value) ? null : value
}
