// What colours stand for: a key for every allocation, and the name and colour of every key.

import type { DeviceData, Stacks } from '../data/model'
import type { ColourBy } from '../ui/state'
import { type Keys, keysOf, whyNot } from './colours/keys'
import { stackColours, STACKS_AT_LEAST } from './shared/colours'
import { nameOfStack } from './shared/describe'
import { css, type Rgb } from './shared/inks'
import { remembered } from '../data/remembered'

export { whyNot }

export interface Colouring {
  by: ColourBy
  /** Grows when keys change: anything drawn with another version is out of date. */
  version: number
  /** Key of each allocation (length N). */
  keys: Uint32Array
  /** Number of keys. */
  count: number
  /** 1 for allocations whose category is inferred, which are drawn hatched; null: nothing is. Length N. */
  hatched: Uint8Array | null
  /** 4 bytes per key, and maybe more after them. */
  rgba: Uint8Array
  nameOf(key: number): string
  /** The query that matches this key and nothing else; null: there is none. */
  queryOf(key: number): string | null
  /** Why the device cannot be coloured this way: everything has key 0 then. Null: it can. */
  missing: string | null
}

interface CachedKeys extends Keys {
  hatched: Uint8Array | null
  version: number
}

/** Keys do not depend on the theme and are cached: switching it computes none again. */
const cache = new WeakMap<DeviceData, Map<ColourBy, CachedKeys>>()
let versions = 0

export function makeColouring(data: DeviceData, stacks: Stacks, by: ColourBy, dark: boolean): Colouring {
  const ofDevice = remembered(cache, data, () => new Map())
  const keys = remembered(ofDevice, by, () => ({
    ...keysOf(data, stacks, by, (stack) => nameOfStack(stacks, stack)),
    hatched: by === 'category' ? inferredOf(data) : null,
    version: ++versions,
  }))
  return {
    by,
    version: keys.version,
    keys: keys.keys,
    count: keys.count,
    hatched: keys.hatched,
    rgba: colourTable(keys, dark, largeStacks(data.info)),
    nameOf: keys.nameOf,
    queryOf: keys.queryOf,
    missing: whyNot(data.info, by),
  }
}

function inferredOf({ categorySource, info, N }: DeviceData): Uint8Array | null {
  const inferred = info.category_sources.indexOf('inferred')
  if (inferred < 0 || categorySource.length < N || !categorySource.includes(inferred)) return null
  return Uint8Array.from({ length: N }, (_, id) => Number(categorySource[id] === inferred))
}

/** The stacks with most bytes at the peak, largest first. */
export function largeStacks({ stats }: DeviceData['info']): number[] {
  return stats.top_stacks_at_peak.map(({ stack }) => stack)
}

function colourTable({ count, colourOf }: Keys, dark: boolean, large: readonly number[]): Uint8Array {
  if (!colourOf) return stackColours(Math.max(STACKS_AT_LEAST, count), dark, large)
  const rgba = new Uint8Array(4 * count)
  for (let key = 0; key < count; key++) rgba.set([...colourOf(key, dark), 255], 4 * key)
  return rgba
}

export function rgbOf({ rgba }: Pick<Colouring, 'rgba'>, key: number): Rgb {
  return [rgba[4 * key], rgba[4 * key + 1], rgba[4 * key + 2]]
}

/** "rgb(…)" of a key. */
export function cssOf(colouring: Colouring, key: number): string {
  return css(rgbOf(colouring, key))
}
