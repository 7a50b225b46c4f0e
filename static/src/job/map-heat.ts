// What the map draws of a metric: values, levels, colours, and how the ranks spread, each made again only when it differs.

import { formatBytes } from '../layout/format'
import { fill, h } from '../ui/dom'
import { Memo } from '../views/memo'
import { oklch } from '../views/shared/colours'
import { mix, type Rgb } from '../views/shared/inks'
import type { HeatCells } from './heat-pixels'
import type { HeatMatrix, Metric } from './job-data'
import type { JobModel } from './job-model'
import type { ColumnRange } from './job-state'
import { clippedEnd, type Spread, spreadOf } from './statistics'

export interface Heat {
  matrix: HeatMatrix
  scale: HeatScale
  cells: HeatCells
  /** Of the brushed rows, by column. */
  spreads: (Spread | null)[]
  /** Whether at least half of the brushed rows recorded a column: the median of fewer says nothing of the job. */
  isCommon: boolean[]
  /** RGBA by level. */
  palette: Uint8Array
}

export class MapHeat {
  private readonly matrices = new Memo<HeatMatrix>()
  private readonly cells = new Memo<Omit<Heat, 'matrix' | 'palette'>>()
  private readonly palettes = new Memo<Uint8Array>()

  of({ data, state, order, rows: counted, dark, inks }: JobModel): Heat {
    const { axis, metric, isAgainst, rows, columns } = state
    const matrix = this.matrices.get([data, axis.key, metric, isAgainst], () => {
      const absolute = data.matrix(axis.key, metric)
      return isAgainst ? againstGroups(absolute, data.expected(axis.key, metric)) : absolute
    })
    const shown = this.cells.get([matrix, order.join(), rows && [...rows].join(), columns?.join('-')], () => {
      const scale = scaleOf(matrix, metric, isAgainst)
      const values = Array.from({ length: matrix.columns }, (_, column) =>
        counted.map((row) => matrix.bytes[row * matrix.columns + column]).filter((value) => !Number.isNaN(value)),
      )
      const isCommon = values.map(({ length }) => 2 * length >= counted.length)
      return { scale, cells: heatCells(matrix, order, scale, rows, columns), spreads: values.map(spreadOf), isCommon }
    })
    const palette = this.palettes.get([isAgainst, dark, inks.panel.join()], () =>
      heatPalette(isAgainst, dark, inks.panel, inks.ink),
    )
    return { matrix, ...shown, palette }
  }
}

/** 256 colours, 4 bytes each; level 0, nothing known, is nearly the panel. */
function heatPalette(isDiverging: boolean, dark: boolean, panel: Rgb, ink: Rgb): Uint8Array {
  const rgba = new Uint8Array(4 * 256)
  rgba.set([...unknownColour(panel, ink), 255], 0)
  for (let level = 1; level < 256; level++) {
    const share = (level - 1) / 254
    rgba.set([...(isDiverging ? divergingColour(2 * share - 1, dark) : heatColour(share, dark)), 255], 4 * level)
  }
  return rgba
}

function unknownColour(panel: Rgb, ink: Rgb): Rgb {
  return mix(panel, ink, 0.06)
}

/** From 0, near the panel, to 1, which stands out most from it: yellow over green and blue to violet, the reverse in the dark. */
export function heatColour(share: number, dark: boolean): Rgb {
  const lightness = dark ? 0.24 + 0.68 * share : 0.955 - 0.63 * share
  const hue = dark ? 300 - 195 * share : 105 + 195 * share
  // Less colour at both ends, where the gamut is narrow.
  return oklch(lightness, 0.035 + 0.1 * Math.sin(Math.PI * Math.min(1, 0.15 + 0.75 * share)), hue)
}

/** From -1 (blue) over the panel's own lightness to 1 (orange). */
export function divergingColour(share: number, dark: boolean): Rgb {
  const away = Math.abs(share)
  const hue = share < 0 ? 255 : 50
  const lightness = dark ? 0.27 + (share < 0 ? 0.5 : 0.55) * away : 0.965 - (share < 0 ? 0.5 : 0.4) * away
  return oklch(lightness, 0.15 * away ** 0.8, hue)
}

/** Bytes at both ends of the colours. `low` is above `high` where less is worse. */
export interface HeatScale {
  low: number
  high: number
  /** The greatest value on the map, where it lies beyond the colours; else null. */
  beyond: number | null
  /** With zero in the middle: colours to both sides. */
  isDiverging: boolean
}

/** Levels 1 … 255; 0 is a cell of which nothing is known. */
const LEVELS = 254
export const MIDDLE_LEVEL = 128

/** The scale begins at zero unless all values lie in the upper part of it: then their differences would not be seen. */
const FROM_ZERO_BELOW = 0.5

/** Against their groups most ranks are near zero: noise gets no more than a quarter of the colours. */
const MIN_CLIP_AGAINST = 0.25

export function scaleOf(matrix: HeatMatrix, metric: Metric, isAgainst: boolean): HeatScale {
  const { bytes } = matrix
  let [min, max] = [Infinity, -Infinity]
  for (const value of bytes) {
    if (value < min) min = value
    if (value > max) max = value
  }
  if (min > max) return { low: 0, high: 1, beyond: null, isDiverging: isAgainst }
  if (isAgainst) {
    const all = Math.max(1, -min, max)
    const most = Math.max(clippedMost(matrix, all), MIN_CLIP_AGAINST * all)
    const beyond = most < all ? all : null
    // More is worse, but of free memory less is.
    return metric === 'free'
      ? { low: most, high: -most, beyond, isDiverging: true }
      : { low: -most, high: most, beyond, isDiverging: true }
  }
  const most = metric === 'free' ? max : clippedMost(matrix, max)
  const beyond = most < max ? max : null
  const bottom = min < FROM_ZERO_BELOW * most || min === most ? 0 : min
  const top = most === bottom ? bottom + 1 : most
  return metric === 'free'
    ? { low: top, high: bottom, beyond, isDiverging: false }
    : { low: bottom, high: top, beyond, isDiverging: false }
}

/** Where the colours end. */
function clippedMost({ rows, columns, bytes }: HeatMatrix, most: number): number {
  const highest = Array.from({ length: rows }, (_, row) => {
    let top = 0
    for (let at = row * columns; at < (row + 1) * columns; at++) top = Math.max(top, Math.abs(bytes[at]) || 0)
    return top
  })
  return Math.min(most, clippedEnd(highest))
}

/** 1 … 255; 0 of NaN. */
export function levelOf(value: number, { low, high }: Pick<HeatScale, 'low' | 'high'>): number {
  if (Number.isNaN(value)) return 0
  const share = (value - low) / (high - low)
  return 1 + Math.round(LEVELS * Math.min(1, Math.max(0, share)))
}

/** Levels in the shown order of rows; cells that are not brushed are dimmed. */
export function heatCells(
  { columns, bytes }: HeatMatrix,
  order: Int32Array,
  scale: HeatScale,
  brushed: ReadonlySet<number> | null,
  range: ColumnRange | null,
): HeatCells {
  const out = new Uint8Array(2 * order.length * columns)
  for (let place = 0; place < order.length; place++) {
    const row = order[place]
    const isRowOut = brushed !== null && !brushed.has(row)
    for (let column = 0; column < columns; column++) {
      const at = 2 * (place * columns + column)
      out[at] = levelOf(bytes[row * columns + column], scale)
      out[at + 1] = Number(isRowOut || (range !== null && (column < range[0] || column > range[1])))
    }
  }
  return { columns, rows: order.length, bytes: out }
}

/** Bytes above what is expected of the row in its group and column; NaN for rows without a group. */
export function againstGroups({ rows, columns, bytes }: HeatMatrix, expected: Float64Array): HeatMatrix {
  return { rows, columns, bytes: bytes.map((value, at) => value - expected[at]) }
}

export function cssOfLevel(palette: Uint8Array, level: number): string {
  return `rgb(${palette[4 * level]} ${palette[4 * level + 1]} ${palette[4 * level + 2]})`
}

export class ColourScale {
  readonly element = h('div.row.job-scale')
  private shown = ''

  render(scale: HeatScale, palette: Uint8Array, name: string): void {
    const key = [scale.low, scale.high, scale.beyond, name, palette.join()].join()
    if (key === this.shown) return
    this.shown = key
    const stops = Array.from({ length: 17 }, (_, i) => cssOfLevel(palette, 1 + Math.round((254 * i) / 16)))
    const bar = h('span.job-scale-bar', { 'aria-hidden': 'true' })
    bar.style.background = `linear-gradient(to right, ${stops.join(', ')})`
    const none = h('span.job-scale-none', { 'aria-hidden': 'true' })
    none.style.background = cssOfLevel(palette, 0)
    const [low, high] = [scale.low, scale.high].map((bytes) => textOf(bytes, scale.isDiverging))
    const beyond = scale.beyond === null ? null : textOf(scale.beyond, scale.isDiverging)
    const clipped = `A few ranks exceed the colours, up to ${beyond}`
    fill(
      this.element,
      h('span', low),
      bar,
      beyond === null
        ? h('span', high)
        : h('span.job-scale-clipped', { title: clipped }, `${high} or more, up to ${beyond}`),
      none,
      h('span.soft', 'not recorded'),
      h('span.offscreen', `${name}: colours from ${low} to ${high}${beyond === null ? '' : `. ${clipped}`}`),
    )
  }
}

export function textOf(bytes: number, isSigned: boolean): string {
  if (!isSigned) return bytes === 0 ? '0' : formatBytes(Math.round(bytes))
  return `${bytes < 0 ? '−' : '+'}${formatBytes(Math.round(Math.abs(bytes)))}`
}
