// What may come next in a query: fields, their values, and the functions and files that hold most bytes at the peak.

import type { DeviceData, DeviceInfo, Stacks } from '../data/model'
import { formatBytes } from '../layout/format'
import { stepRanges } from '../steps/steps'
import { type Field, FIELDS, fold, isField, MOMENTS, ORIGINS, POOLS, PREEXISTING, SOURCES } from './fields'
import { BLANKS } from './grammar'
import { StackTexts } from './texts'
import { remembered } from '../data/remembered'

export interface Suggestion {
  /** The text in the list. */
  label: string
  detail: string
  /** Replaces the query from `from` to `to`. */
  insert: string
  from: number
  to: number
}

export interface Source {
  data: DeviceData
  stacks: Stacks
  info: DeviceInfo
}

/** Each field in a few words, with an example of its value. */
export const FIELD_HELP: Record<Field, string> = {
  size: 'bytes requested: >1MiB, 1KiB..2GiB',
  addr: 'holds this address: 0x7f12…',
  stream: 'number of its stream',
  pool: 'memory pool: 0,1, default, private',
  device: 'number or kind: 0, cuda, host',
  category: 'what it is for',
  origin: 'traced, freed, ghost, preexisting',
  event: 'allocated in: 100..200; one event: what it is about',
  time: 'allocated at, since the first event: 1s..2s',
  lifetime: 'events lived: >1000; or time: >5ms',
  live: 'alive at: peak, end, oom, start, an event; in step 3',
  file: 'file of a frame; file.py:12 for a line',
  func: 'function of a frame',
  line: 'line of a frame',
  stack: 'number of its stack; or a word of it',
  'free-stack': 'number of the stack that freed it; or a word of it',
  'freed-in': 'freed in this step: 3, 10..20; or in what is so annotated',
  top: 'so many of the largest: 20',
  step: 'in this step: 3, 10..20; or in what is so annotated',
  meta: 'compile context, user metadata',
  op: 'operator that the program called: softmax; *norm',
  module: 'module that made it, and all below: layers.7; layers.*.attn; inferred: dit:249.3',
  shape: 'shape of its tensor: 4x128; *x32000',
  dtype: 'type of its tensor: float32, *16',
  saved: 'grad_fn that saved it for the backward pass: Softmax; *',
  source: 'where its category comes from: stack, inferred',
}

const SHOWN = 8

/** Suggestions for the word before the caret, the likeliest first. */
export function suggest(query: string, caret: number, source: Source | null): Suggestion[] {
  const { from, to } = wordAt(query, caret)
  const word = query.slice(from, caret)
  const found = /^([A-Za-z_-]+)[:=]"?([\s\S]*)$/.exec(word)
  const put = (label: string, detail: string, insert: string): Suggestion => ({ label, detail, insert, from, to })
  if (found && isField(found[1].toLowerCase())) {
    const field = found[1].toLowerCase() as Field
    const values = source ? valuesOf(field, fold(found[2]), source) : []
    return values
      .slice(0, SHOWN)
      .map(([value, detail]) => put(`${field}:${value}`, detail, `${field}:${quoted(value)} `))
  }
  if (word.startsWith('"')) return []
  const fields = (Object.keys(FIELDS) as Field[]).filter((name) => name.startsWith(word.toLowerCase()))
  const out = fields.map((name) => put(`${name}:`, FIELD_HELP[name], `${name}:`))
  if (word.length < 2 || !source) return out
  const names = (['category', 'func', 'file'] as const).flatMap((field) =>
    valuesOf(field, fold(word), source)
      .slice(0, field === 'func' ? 5 : 3)
      .map(([value, detail]) => put(`${field}:${value}`, detail, `${field}:${quoted(value)} `)),
  )
  return [...out, ...names].slice(0, SHOWN)
}

/** The word that the caret is in or behind, without operators before it. */
export function wordAt(query: string, caret: number): { from: number; to: number } {
  let from = 0
  let inQuotes = false
  for (let at = 0; at < caret; at++) {
    if (query[at] === '"') inQuotes = !inQuotes
    else if (!inQuotes && (BLANKS.includes(query[at]) || (query[at] === '(' && /^-*$/.test(query.slice(from, at)))))
      from = at + 1
  }
  while (from < caret && query[from] === '-') from++
  let to = caret
  while (
    to < query.length &&
    (inQuotes ? query[to - 1] !== '"' || to === caret : !BLANKS.includes(query[to]) && query[to] !== ')')
  )
    to++
  if (query[to] === ' ') to++
  return { from, to }
}

/** Values of a field that hold what was typed, with a word on each. */
function valuesOf(field: Field, typed: string, source: Source): [value: string, detail: string][] {
  const { info } = source
  const holding = (values: readonly string[]): [string, string][] =>
    values.filter((value) => value.includes(typed)).map((value) => [value, ''])
  switch (field) {
    case 'category':
      return ranked(atPeak(source).categories, typed)
    case 'func':
      return withOthers(ranked(atPeak(source).functions, typed), 'func', typed, source)
    case 'file':
      return withOthers(ranked(atPeak(source).files, typed), 'file', typed, source)
    case 'source':
      return holding(SOURCES)
    case 'origin':
      return holding([...ORIGINS, PREEXISTING])
    case 'live':
      return holding(MOMENTS)
    case 'pool':
      return holding([...POOLS, ...info.pools.filter((pool) => pool !== '').map((pool) => pool.replace(/[() ]/g, ''))])
    case 'device':
      return holding([String(info.device), info.kind])
    case 'stream':
      return holding(info.streams.filter((stream) => stream !== ''))
    case 'step':
    case 'freed-in':
      return stepValues(info, typed)
    default:
      return []
  }
}

/** Numbers of steps, then names of annotations. A name that reads as a number cannot be searched for. */
function stepValues(info: DeviceInfo, typed: string): [string, string][] {
  const steps = stepRanges(info)
  const names = new Map<string, string>()
  steps?.numbers.forEach((number, i) => {
    names.set(String(number), steps.names[i])
  })
  const own = new Set(steps?.names)
  for (const name of info.spans?.names ?? [])
    if (!own.has(name) && name.trim() !== '' && !/^[\d.,_-]+$/.test(name)) names.set(name, 'annotated')
  return [...names].filter(([value]) => fold(value).includes(typed))
}

type Held = Map<string, number>

interface AtPeak {
  categories: Held
  functions: Held
  files: Held
}

const peaks = new WeakMap<DeviceData, AtPeak>()

/** Bytes at the peak by category, function and file; runtime noise is left out. Made once for a device. */
function atPeak({ data, stacks, info }: Source): AtPeak {
  return remembered(peaks, data, () => heldAtPeak(data, stacks, info))
}

function heldAtPeak(data: DeviceData, stacks: Stacks, info: DeviceInfo): AtPeak {
  const made: AtPeak = { categories: new Map(), functions: new Map(), files: new Map() }
  const { frameOf, caller, leaf, frames, isNoise } = stacks.trie
  const s = info.peak_event + 1
  const byStack = new Map<number, number>()
  const byCategory = new Float64Array(info.categories.length)
  for (let id = 0; id < data.N; id++) {
    if (data.start[id] > s || data.end[id] <= s) continue
    byStack.set(data.stack[id], (byStack.get(data.stack[id]) ?? 0) + data.size[id])
    byCategory[data.category[id]] += data.size[id]
  }
  info.categories.forEach((name, i) => {
    made.categories.set(name, byCategory[i])
  })
  for (const [stack, bytes] of byStack) {
    const functions = new Set<number>()
    const files = new Set<number>()
    for (let node = leaf[stack]; node >= 0; node = caller[node]) {
      if (isNoise(frameOf[node])) continue
      functions.add(frames.name[frameOf[node]])
      files.add(frames.file[frameOf[node]])
    }
    const paths = new Set([...files].map((file) => lastParts(frames.filenames[file])))
    for (const name of functions) add(made.functions, frames.names[name], bytes)
    for (const path of paths) add(made.files, path, bytes)
  }
  for (const key of ['functions', 'files'] as const)
    made[key] = new Map([...made[key]].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)))
  made.categories = new Map([...made.categories].sort((a, b) => b[1] - a[1]))
  return made
}

function add(held: Held, name: string, bytes: number): void {
  held.set(name, (held.get(name) ?? 0) + bytes)
}

function ranked(held: Held, typed: string): [string, string][] {
  const out: [string, string][] = []
  for (const [name, bytes] of held) {
    if (name !== '' && fold(name).includes(typed))
      out.push([name, bytes > 0 ? `${formatBytes(bytes)} at the peak` : 'not at the peak'])
    if (out.length === SHOWN) break
  }
  return out
}

/** Where the peak has no match, matches at other moments. */
function withOthers(
  found: [string, string][],
  field: 'file' | 'func',
  typed: string,
  { stacks }: Source,
): [string, string][] {
  if (found.length > 0 || typed.length < 2) return found
  const known = new Set<string>()
  for (const text of StackTexts.of(stacks).distinct(field, typed)) {
    const name = field === 'file' ? lastParts(text) : text
    if (known.has(name) || !fold(name).includes(typed)) continue
    known.add(name)
    found.push([name, 'not at the peak'])
    if (found.length === SHOWN) break
  }
  return found
}

/** The last two parts of a path tell files apart. */
function lastParts(path: string): string {
  return path.split(/[\\/]/).slice(-2).join('/')
}

function quoted(value: string): string {
  return /[\s()"*]|^-/.test(value) ? `"${value.replace(/"/g, '""')}"` : value
}
