// Settings of the caching allocator, in PYTORCH_CUDA_ALLOC_CONF's syntax. The twin of snapreport/allocator/settings.py.

import { rulesOf } from '../allocator/rounding'
import { LARGE_BUFFER, MIN_LARGE_ALLOC } from './blocks'

const MIB = 2 ** 20
const INTERVALS = 16
const DEFAULT_ROUNDING = LARGE_BUFFER
/** Keys that PyTorch knows and that do not change how much device memory is reserved. */
const NO_EFFECT = new Set([
  'release_lock_on_cudamalloc',
  'release_lock_on_hipmalloc',
  'pinned_use_cuda_host_register',
  'pinned_use_hip_host_register',
  'pinned_num_register_threads',
  'pinned_use_background_threads',
  'pinned_reserve_segment_size_mb',
  'pinned_max_round_threshold_mb',
  'pinned_max_cached_size_mb',
  'pinned_free_catch_all',
  'graph_capture_record_stream_reuse',
  'throw_on_cudamalloc_oom',
  'expandable_segments_reserve',
  'expandable_segments_reserve_by_class',
])

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
  /** Free blocks of equal size are chosen by the age of their segments (PyTorch 2.15), else by address. */
  oldestFirst: boolean
}

/** The settings of a snapshot; `expandableSeen`: whether it has an expandable segment. */
export function recordedSettings(
  settings: Record<string, unknown> | undefined,
  expandableSeen: boolean,
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
    maxNonSplitRounding: rounding ? Number(rounding[1]) * MIB : DEFAULT_ROUNDING,
    divisions,
    largeSegment: large && Number(large[1]) * MIB > MIN_LARGE_ALLOC ? Number(large[1]) * MIB : LARGE_BUFFER,
    threshold: typeof threshold === 'number' && threshold > 0 && threshold < 1 ? threshold : 0,
    fraction: null,
    oldestFirst: false,
  }
}

/** `base` with the settings in `text` on top. Throws an Error with one line for what PyTorch would refuse. */
export function parseSettings(text: string, base: AllocatorSettings): AllocatorSettings {
  let settings = base
  for (const part of text.split(/,(?![^[]*\])/)) {
    if (!part.trim()) continue
    const colon = part.indexOf(':')
    const key = part.slice(0, Math.max(colon, 0)).trim()
    const value = part.slice(colon + 1).trim()
    if (colon < 0 || !value) throw new Error(`${part.trim()}: a setting is KEY:VALUE, e.g. expandable_segments:True`)
    settings = { ...settings, ...parsed(key, value) }
  }
  return settings
}

function parsed(key: string, value: string): Partial<AllocatorSettings> {
  switch (key) {
    case 'expandable_segments':
      if (value !== 'True' && value !== 'False') throw new Error(`expandable_segments is True or False, not ${value}`)
      return { expandable: value === 'True' }
    case 'max_split_size_mb':
      return { maxSplit: mebibytes(key, value) }
    case 'max_non_split_rounding_mb':
      return { maxNonSplitRounding: mebibytes(key, value) }
    case 'large_segment_size_mb': {
      const size = whole(key, value) * MIB
      if (size <= MIN_LARGE_ALLOC) throw new Error(`${key} must be greater than 10, not ${value}`)
      return { largeSegment: size }
    }
    case 'roundup_power2_divisions':
      return { divisions: parseDivisions(value) }
    case 'garbage_collection_threshold':
      return { threshold: share(key, value) }
    case 'per_process_memory_fraction':
      return { fraction: share(key, value) }
    case 'backend':
      if (value !== 'native') throw new Error(`backend:${value}: only PyTorch's native allocator can be replayed`)
      return {}
    default:
      if (NO_EFFECT.has(key)) return {}
      throw new Error(`${key} is no setting that can be replayed`)
  }
}

function mebibytes(key: string, value: string): number {
  const size = whole(key, value)
  if (size <= 20) throw new Error(`${key} must be greater than 20, not ${value}`)
  return size * MIB
}

function whole(key: string, value: string): number {
  if (!/^\d{1,9}$/.test(value)) throw new Error(`${key} is a whole number, not ${value}`)
  return Number(value)
}

function share(key: string, value: string): number {
  const number = /^\d*\.?\d+$/.test(value) && value.length <= 20 ? Number(value) : Number.NaN
  const most = key === 'per_process_memory_fraction' && number === 1
  if (!(number > 0 && (number < 1 || most))) throw new Error(`${key} is a number between 0 and 1, not ${value}`)
  return number
}

function parseDivisions(value: string): number[] {
  const key = 'roundup_power2_divisions'
  if (!value.startsWith('[')) return new Array<number>(INTERVALS).fill(power(key, value))
  if (!value.endsWith(']')) throw new Error(`${key}: ${value} has no closing bracket`)
  const divisions = new Array<number>(INTERVALS).fill(0)
  let last = 0
  let first = true
  for (const pair of value.slice(1, -1).split(',')) {
    const [size, count] = pair.split(':').map((text) => text.trim())
    if (count === undefined) throw new Error(`${key}: ${pair} is not SIZE:DIVISIONS`)
    const steps = power(key, count)
    if (size === '>') {
      divisions.fill(steps, last)
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
  if (number < 1 || !Number.isInteger(Math.log2(number))) throw new Error(`${key} takes powers of two, not ${value}`)
  return number
}

/** Whether two settings give the same placement. */
export function sameSettings(one: AllocatorSettings, two: AllocatorSettings): boolean {
  const { divisions, ...rest } = one
  return (
    divisions.every((steps, at) => steps === two.divisions[at]) &&
    Object.entries(rest).every(([key, value]) => two[key as keyof AllocatorSettings] === value)
  )
}
