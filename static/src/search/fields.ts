// The fields of the query language, and how the value of each is read: the twin of snapreport/search/fields.py.
// Numbers end up as whole closed intervals: every column they are compared with is whole (bytes, µs, events, numbers).

import vocabulary from '../../../snapreport/vocabulary.json'
import { fillIn } from '../data/fill-in'

/** A query that cannot be read. `position`, `length`: the bad part of it, in UTF-16 units. */
export class QueryError extends Error {
  constructor(
    readonly reason: string,
    readonly position: number,
    readonly length: number,
  ) {
    super(`the query is bad at character ${position + 1}: ${reason}`)
    this.name = 'QueryError'
  }
}

export type QueryErrorName = keyof typeof vocabulary.query_errors

export function queryError(
  error: QueryErrorName,
  at: number,
  length: number,
  values: Record<string, string | number> = {},
): QueryError {
  return new QueryError(fillIn(vocabulary.query_errors[error], values), at, length)
}

/** What is no operator, and what to write instead. */
export const QUERY_OPERATORS: Record<string, string> = vocabulary.query_operators

/** Why a term of a query matches nothing. */
export const QUERY_NOTES = vocabulary.query_notes

export type Field = keyof typeof vocabulary.query_fields
type Kind =
  | 'size'
  | 'address'
  | 'stream'
  | 'pool'
  | 'device'
  | 'category'
  | 'origin'
  | 'whole'
  | 'time'
  | 'lifetime'
  | 'moment'
  | 'text'
  | 'whole or text'
  | 'source'
  | 'step'
  | 'count'
  | 'parts'
/** Field → what its value is. The order is that in messages. */
export const FIELDS = vocabulary.query_fields as Record<Field, Kind>

/** Of the fields whose texts consist of parts: what is between two of them. */
export const PART_SEPARATORS: Record<'op' | 'module' | 'shape' | 'dtype', string> = vocabulary.part_separators

export const CATEGORIES: readonly string[] = vocabulary.categories
/** Where a category comes from. */
export const SOURCES: readonly string[] = vocabulary.category_sources
export const ORIGINS: readonly string[] = vocabulary.origins
export const PREEXISTING = 'preexisting'
export const MOMENTS: readonly string[] = vocabulary.moments
export const POOLS: readonly string[] = vocabulary.pools

/** Whole numbers from `low` to `high`, both included; null: no bound. `unit`: of a lifetime; "step": numbers of steps. */
export interface Range {
  kind: 'range'
  low: number | null
  high: number | null
  unit: '' | 'events' | 'us' | 'step'
}

/** The same for what has 64 bits: addresses and streams. */
export interface WideRange {
  kind: 'wide'
  low: bigint | null
  high: bigint | null
}

/** Text that contains `parts` in this order, all folded. `place`: or a frame in such a file at this line. */
export interface Text {
  kind: 'text'
  parts: string[]
  place: { parts: string[]; line: number } | null
}

/** One of some names. */
export interface Choice {
  kind: 'choice'
  names: string[]
}

export type Test = Range | WideRange | Text | Choice
export type Op = ':' | '=' | '>' | '>=' | '<' | '<='

const LIMIT = 2 ** 64
const NUMBER = String.raw`[0-9](?:[0-9,_]{0,24}[0-9])?(?:\.[0-9]{1,12})?`
const SIZE = new RegExp(String.raw`^[ \t]*(${NUMBER})[ \t]*([kmgt]?i?)b?[ \t]*$`, 'i')
const TIME = new RegExp(`^(${NUMBER}) *(ns|us|µs|μs|ms|s|min|h|)$`)
const WHOLE = /^(-?)([0-9](?:[0-9,_]{0,24}[0-9])?)$/
const ADDRESS = /^(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})$/
const STEP = /^step[ \t\n\r\f\v\u00a0]+(-?[0-9][0-9,_.]*)$/i
const COUNT = /^[1-9][0-9]{0,8}$/
const PLACE = /^([\s\S]+):([0-9]{1,9})$/
const POOL = /^\(? *([0-9]{1,20}) *, *([0-9]{1,20}) *\)?$/
const SIZE_UNITS: Record<string, number> = vocabulary.size_units
const US: Record<string, number> = vocabulary.time_units_us

export function isField(name: string): name is Field {
  return Object.hasOwn(FIELDS, name)
}

/** Text as it is compared: lower case, and with one kind of slash. */
export function fold(text: string): string {
  return text.toLowerCase().replace(/\\/g, '/')
}

/** A text in the form in which `bounded` finds parts of it: separators around each, and around them its ends. */
export function inParts(text: string, separator: string): string {
  return `^${separator}${text}${separator}$`
}

/**
 * Whole parts from the first on, so that `layers.7` finds all below it and not `layers.70`; `*` stands for anything. All
 * parts if quoted, or if not a path: `*x4096` is the last dimension.
 */
function bounded(value: string, separator: string, isQuoted: boolean, isPath: boolean): string[] {
  if (isQuoted) return [fold(inParts(value, separator))]
  const pieces = fold(value).split('*')
  const last = pieces.length - 1
  if (pieces[0]) pieces[0] = `^${separator}${pieces[0]}`
  if (pieces[last]) pieces[last] += separator + (isPath ? '' : '$')
  return pieces.filter(Boolean)
}

/** The test of a bare word. `*` stands for anything and `file.py:12` for a place unless the word is quoted. */
export function textOf(words: string, isQuoted: boolean): Text {
  return isQuoted
    ? { kind: 'text', parts: [fold(words)], place: null }
    : { kind: 'text', parts: partsOf(words), place: placeOf(words) }
}

/** The test of a value. `at`: where it begins in the query. Throws QueryError. */
export function readValue(field: Field, op: Op, value: string, at: number, isQuoted: boolean): Test {
  const kind: Kind = FIELDS[field]
  const isEqual = op === ':' || op === '='
  const bad = valueErrors(value, at)
  const step = (kind === 'step' || kind === 'moment') && isEqual ? STEP.exec(value) : null
  if (step) {
    const begin = value.length - step[1].length
    return { ...range(field, 'whole', op, step[1], valueErrors(step[1], at + begin)), unit: 'step' }
  }
  if (kind === 'step' && isEqual && isWholeRange(value))
    return { ...range(field, 'whole', op, value, bad), unit: 'step' }
  if (kind === 'count') {
    if (!isEqual) throw bad('name_only', { field })
    if (!COUNT.test(value)) throw bad('count')
    return { kind: 'range', low: null, high: Number(value), unit: '' }
  }
  if (kind === 'text' || kind === 'step' || (kind === 'whole or text' && isEqual && !isWholeRange(value))) {
    if (!isEqual) throw bad('text_only', { field })
    return {
      kind: 'text',
      parts: isQuoted ? [fold(value)] : partsOf(value),
      place: field === 'file' ? placeOf(value) : null,
    }
  }
  if (kind === 'parts') {
    if (!isEqual) throw bad('text_only', { field })
    const separator = PART_SEPARATORS[field as keyof typeof PART_SEPARATORS]
    return { kind: 'text', parts: bounded(value, separator, isQuoted, field === 'module'), place: null }
  }
  if (kind === 'category' || kind === 'source' || kind === 'origin' || kind === 'pool') {
    if (!isEqual) throw bad('name_only', { field })
    return { kind: 'choice', names: namesOf(kind, value, bad) }
  }
  if (kind === 'moment' && isEqual && includes(MOMENTS, value.toLowerCase()))
    return { kind: 'choice', names: [value.toLowerCase()] }
  if (kind === 'device' && isEqual && /^[A-Za-z]+$/.test(value)) return { kind: 'choice', names: [value.toLowerCase()] }
  return kind === 'address' || kind === 'stream'
    ? wideRange(field, kind, op, value, bad)
    : range(field, kind, op, value, bad)
}

/** Bytes of a size, a fraction of one rounded to a thousandth; null for text that is none: see snapreport/sizes.py. */
export function parseSize(text: string): number | null {
  const found = SIZE.exec(text)
  const unit = found && SIZE_UNITS[found[2].toLowerCase()]
  return unit ? scaled(found[1], unit) : null
}

/** Whether text can only be meant as a number with or without a unit. */
export function isQuantity(text: string): boolean {
  return parseSize(text) !== null || TIME.test(text)
}

/** An error about a value, or about a part of it that begins at `begin`. */
type ValueErrors = (error: QueryErrorName, values?: Record<string, string>, part?: string, begin?: number) => QueryError

function valueErrors(value: string, at: number): ValueErrors {
  return (error, values, part = value, begin = 0) =>
    queryError(error, at + begin, Math.max(part.length, 1), { value: part, ...values })
}

function partsOf(words: string): string[] {
  return fold(words)
    .split('*')
    .filter((part) => part !== '')
}

function placeOf(words: string): Text['place'] {
  const found = PLACE.exec(words)
  return found && { parts: partsOf(found[1]), line: Number(found[2]) }
}

function isWholeRange(value: string): boolean {
  return value !== '..' && splitRange(value).every((end) => end === '' || WHOLE.test(end))
}

/** Both ends of a range, or the value alone. */
function splitRange(value: string): string[] {
  const dots = value.indexOf('..')
  return dots < 0 ? [value] : [value.slice(0, dots), value.slice(dots + 2)]
}

function includes(names: readonly string[], name: string): boolean {
  return names.includes(name)
}

function namesOf(kind: 'category' | 'source' | 'origin' | 'pool', value: string, bad: ValueErrors): string[] {
  const term = value.toLowerCase()
  if (kind === 'category') {
    const names = CATEGORIES.filter((name) => name.includes(term))
    if (names.length === 0) throw bad('category', { known: CATEGORIES.join(', ') })
    return names
  }
  if (kind === 'source') {
    if (!includes(SOURCES, term)) throw bad('source', { known: SOURCES.join(', ') })
    return [term]
  }
  if (kind === 'origin') {
    if (term === PREEXISTING) return ['freed', 'ghost']
    if (!includes(ORIGINS, term)) throw bad('origin', { known: [...ORIGINS, PREEXISTING].join(', ') })
    return [term]
  }
  if (includes(POOLS, term)) return [term]
  const pair = POOL.exec(value)
  if (!pair) throw bad('pool', { known: POOLS.join(', ') })
  return [`(${BigInt(pair[1])}, ${BigInt(pair[2])})`]
}

/** Both ends of `a..b`, each with its place in the value; null where there is none. */
function endsOf(field: Field, op: Op, value: string, bad: ValueErrors): [string, string] {
  if (op !== ':' && op !== '=') throw bad('range_only', { field })
  const [first, last] = splitRange(value)
  if (!first && !last) throw bad('open_range')
  return [first, last]
}

function range(field: Field, kind: Kind, op: Op, value: string, bad: ValueErrors): Range {
  if (!value.includes('..')) {
    const { number, unit } = numberOf(field, kind, value, 0, bad)
    const low = op === '>' ? Math.floor(number) + 1 : op === '<' || op === '<=' ? null : Math.ceil(number)
    const high = op === '<' ? Math.ceil(number) - 1 : op === '>' || op === '>=' ? null : Math.floor(number)
    return { kind: 'range', low: limited(low), high: limited(high), unit }
  }
  const [first, last] = endsOf(field, op, value, bad)
  const low = first ? numberOf(field, kind, first, 0, bad) : null
  const high = last ? numberOf(field, kind, last, first.length + 2, bad) : null
  if (low && high) {
    if (low.unit !== high.unit) throw bad('mixed_range')
    if (low.number > high.number) throw bad('empty_range', { first, last })
  }
  return {
    kind: 'range',
    low: limited(low && Math.ceil(low.number)),
    high: limited(high && Math.floor(high.number)),
    unit: (low ?? high)!.unit,
  }
}

function wideRange(field: Field, kind: 'address' | 'stream', op: Op, value: string, bad: ValueErrors): WideRange {
  if (!value.includes('..')) {
    const number = wideNumber(field, kind, value, 0, bad)
    const low = op === '>' ? number + 1n : op === '<' || op === '<=' ? null : number
    const high = op === '<' ? number - 1n : op === '>' || op === '>=' ? null : number
    return { kind: 'wide', low, high }
  }
  const [first, last] = endsOf(field, op, value, bad)
  const low = first ? wideNumber(field, kind, first, 0, bad) : null
  const high = last ? wideNumber(field, kind, last, first.length + 2, bad) : null
  if (low !== null && high !== null && low > high) throw bad('empty_range', { first, last })
  return { kind: 'wide', low, high }
}

function limited(number: number | null): number | null {
  return number === null ? null : Math.max(-LIMIT, Math.min(LIMIT, number))
}

function wideNumber(field: Field, kind: 'address' | 'stream', text: string, begin: number, bad: ValueErrors): bigint {
  if (kind === 'stream') {
    const found = WHOLE.exec(text)
    if (!found) throw bad('whole', { field }, text, begin)
    const number = BigInt(found[2].replace(/[,_]/g, ''))
    return found[1] ? -number : number
  }
  const number = ADDRESS.test(text) ? BigInt(text) : 2n ** 64n
  if (number >= 2n ** 64n) throw bad('address', {}, text, begin)
  return number
}

function numberOf(
  field: Field,
  kind: Kind,
  text: string,
  begin: number,
  bad: ValueErrors,
): { number: number; unit: Range['unit'] } {
  if (kind === 'size') {
    const number = parseSize(text)
    if (number === null) throw bad('size', {}, text, begin)
    return { number, unit: '' }
  }
  if (kind === 'time' || kind === 'lifetime') {
    const found = TIME.exec(text)
    const isEvents = kind === 'lifetime' && found?.[2] === ''
    if (!found || (isEvents && found[1].includes('.'))) {
      throw bad(kind, { field }, text, begin)
    }
    return { number: scaled(found[1], US[found[2]]), unit: kind === 'time' ? '' : isEvents ? 'events' : 'us' }
  }
  const found = WHOLE.exec(text)
  if (found) return { number: Number(found[1] + found[2].replace(/[,_]/g, '')), unit: '' }
  const known = MOMENTS.join(', ')
  throw bad(kind === 'moment' || kind === 'device' ? kind : 'whole', { field, known }, text, begin)
}

/** A number times its unit. Fractions are rounded to a thousandth, so that 1.234567s is 1234567 µs exactly. */
function scaled(digits: string, unit: number): number {
  const plain = digits.replace(/[,_]/g, '')
  if (!plain.includes('.') && unit >= 1) return Number(plain) * unit
  return Math.floor(Number(plain) * unit * 1000 + 0.5) / 1000
}
