// Settings of the caching allocator, in PYTORCH_CUDA_ALLOC_CONF's syntax. The twin of snapreport/allocator/settings.py.

import { facts, INTERVALS, sentence } from '../allocator/facts'
import { rulesOf } from '../allocator/rounding'

const MIB = 2 ** 20
const { defaults } = facts
const KNOWN = Object.keys(facts.settings).join(', ')

export interface AllocatorSettings {
  expandable: boolean
  /** Bytes; Infinity: no limit. */
  maxSplit: number
  maxNonSplitRounding: number
  divisions: readonly number[]
  /** Bytes of a segment for requests of 1 to 10 MiB, and of a granule of expandable segments. */
  largeSegment: number
  /** 0: no garbage collection. */
  threshold: number
  /** Of the device's memory; null: no memory fraction was set, and garbage collection does nothing. */
  fraction: number | null
  /** What decides between free blocks of equal size; the self-check finds out which. */
  tieBreak: TieBreak
  /** Values are read as by PyTorch 2.10 to 2.15, or as by 2.6 to 2.9; null: which of them recorded is not known. */
  since210: boolean | null
}

/** See snapreport/allocator/settings.py. */
export const TIE_BREAKS = ['address', 'block', 'segment'] as const
export type TieBreak = (typeof TIE_BREAKS)[number]

const PYTORCH_DEFAULTS = recordedSettings(undefined, false, null)

/** The settings of a snapshot; `expandableSeen`: whether it has an expandable segment. */
export function recordedSettings(
  settings: Record<string, unknown> | undefined,
  expandableSeen: boolean,
  since210: boolean | null,
): AllocatorSettings {
  const { maxSplit, divisions } = rulesOf(settings, 'cuda')
  const given = settings?.expandable_segments
  const threshold = settings?.garbage_collection_threshold
  const conf = settings?.PYTORCH_CUDA_ALLOC_CONF
  const rounding = typeof conf === 'string' ? /max_non_split_rounding_mb\s*:\s*(\d{1,9})/.exec(conf) : null
  const large = typeof conf === 'string' ? /large_segment_size_mb\s*:\s*(\d{1,9})/.exec(conf) : null
  return {
    expandable: typeof given === 'boolean' ? given : expandableSeen,
    maxSplit,
    maxNonSplitRounding: rounding ? Number(rounding[1]) * MIB : defaults.max_non_split_rounding,
    divisions,
    largeSegment:
      large && Number(large[1]) >= facts.settings.large_segment_size_mb.least
        ? Number(large[1]) * MIB
        : defaults.large_segment,
    threshold:
      typeof threshold === 'number' && threshold > 0 && threshold < 1
        ? threshold
        : defaults.garbage_collection_threshold,
    fraction: defaults.memory_fraction,
    tieBreak: defaults.tie_break as TieBreak,
    since210,
  }
}

/** `base` with the settings in `text` on top. Throws an Error with one line for what PyTorch would refuse. */
export function parseSettings(text: string, base: AllocatorSettings): AllocatorSettings {
  let settings = base
  for (const part of text.split(/,(?![^[]*\])/).map((piece) => piece.trim())) {
    if (!part) continue
    if (part === facts.notes.default) {
      settings = { ...PYTORCH_DEFAULTS, tieBreak: base.tieBreak, since210: base.since210 }
      continue
    }
    const [key, value] = [part.replace(/:[\s\S]*/, ''), part.replace(/^[^:]*:?/, '')].map((word) => word.trim())
    if (!value) throw settingError('pair', { part })
    settings = { ...settings, ...parsed(key, value, settings) }
  }
  return settings
}

function settingError(kind: keyof typeof facts.setting_errors, values: Record<string, string | number>): Error {
  return new Error(sentence('setting_errors', kind, values))
}

function parsed(key: string, value: string, base: AllocatorSettings): Partial<AllocatorSettings> {
  switch (key) {
    case 'expandable_segments':
      if (value !== 'True' && value !== 'False') throw settingError('flag', { key, value })
      return { expandable: value === 'True' }
    case 'max_split_size_mb':
      return { maxSplit: mebibytes(key, value, base.since210) }
    case 'max_non_split_rounding_mb':
      return { maxNonSplitRounding: mebibytes(key, value, base.since210) }
    case 'large_segment_size_mb':
      return { largeSegment: mebibytes(key, value, base.since210) }
    case 'roundup_power2_divisions':
      return { divisions: parseDivisions(key, value, base.since210) }
    case 'garbage_collection_threshold':
      return { threshold: share(key, value) }
    case 'per_process_memory_fraction':
      return { fraction: share(key, value) }
    case 'backend':
      if (value !== 'native') throw settingError('backend', { value })
      return {}
    default:
      if (facts.settings_without_effect.includes(key)) return {}
      throw settingError('unknown', { key, known: KNOWN })
  }
}

function whole(key: string, value: string): number {
  if (!/^[0-9]{1,9}$/.test(value)) throw settingError('whole', { key, value })
  return Number(value)
}

/** Bytes of a setting in MiB. */
function mebibytes(
  key: 'max_split_size_mb' | 'max_non_split_rounding_mb' | 'large_segment_size_mb',
  value: string,
  since210: boolean | null,
): number {
  const size = whole(key, value)
  const { least: since, least_before_2_10: before } = facts.settings[key]
  const least = since210 === false ? before : since
  if (size < least) throw settingError('least', { key, value, least })
  return size * MIB
}

function share(key: string, value: string): number {
  const number = /^[0-9]*\.?[0-9]+$/.test(value) && value.length <= 40 ? Number(value) : 0
  const most = key === 'per_process_memory_fraction' && number === 1
  if (!(number > 0 && (number < 1 || most))) throw settingError('share', { key, value })
  return number
}

function parseDivisions(key: string, value: string, since210: boolean | null): number[] {
  if (!value.startsWith('[')) return new Array<number>(INTERVALS).fill(power(key, value))
  if (!value.endsWith(']')) throw settingError('bracket', { key, value })
  const divisions = new Array<number>(INTERVALS).fill(0)
  let last = 0
  let first = true
  for (const pair of value.slice(1, -1).split(',').filter(Boolean)) {
    const [size, count] = pair.split(':').map((text) => text.trim())
    if (count === undefined) throw settingError('divisions', { key, pair })
    const steps = count === '0' ? 0 : power(key, count)
    if (size === '>') {
      divisions.fill(steps, since210 === false ? last : last + 1)
      continue
    }
    const index = Math.min(Math.log2(power(key, size)), INTERVALS - 1)
    if (first) divisions.fill(steps, 0, index)
    first = false
    divisions[index] = steps
    last = index
  }
  return divisions
}

function power(key: string, value: string): number {
  const number = whole(key, value)
  if (number < 1 || !Number.isInteger(Math.log2(number))) throw settingError('power', { key, value })
  return number
}

/** The settings in a text by the note that says whose reading it is: see both_readings of the library. */
export function bothReadings(text: string, base: AllocatorSettings): [note: Reading | '', AllocatorSettings][] {
  if (base.since210 !== null) return [['', parseSettings(text, base)]]
  const read = (since210: boolean): AllocatorSettings => ({ ...parseSettings(text, { ...base, since210 }), since210 })
  const [before, since] = [read(false), read(true)]
  if (sameSettings({ ...before, since210: true }, since)) return [['', { ...since, since210: null }]]
  return [
    ['before_2_10', before],
    ['since_2_10', since],
  ]
}

type Reading = 'before_2_10' | 'since_2_10'

/** Whether two settings give the same placement. */
export function sameSettings(one: AllocatorSettings, two: AllocatorSettings): boolean {
  const { divisions, ...rest } = one
  return (
    divisions.every((steps, at) => steps === two.divisions[at]) &&
    Object.entries(rest).every(([key, value]) => two[key as keyof AllocatorSettings] === value)
  )
}
