// The keys of the timeline's bands, and the colour of every key: the chosen colouring, and with a query
// one colour for matches and a faint one for the rest.

import type { BandKeys } from '../../data/model'
import type { DataClient } from '../../worker/data-client'
import type { Matches } from '../../search/matches'
import type { State } from '../../ui/state'
import { HATCHED } from '../../gl/flat-stage'
import { type Colouring, cssOf, largeStacks, rgbOf } from '../colouring'
import { greyColours, stackColours, STACKS_AT_LEAST } from '../shared/colours'
import { Memo } from '../memo'

type Rgb = readonly [number, number, number, ...number[]]

/** The share of its colour that a band without a match keeps; the rest is the panel's. */
const FAINT = 0.24

/** Of all timelines: in a split, two of one device may have keys of their own. */
let versions = 0

/** Colours of the names that tiles of a version have. */
export interface BandPalette {
  /** BandKeys.version */
  version: number
  /** 4 bytes per name */
  rgba: Uint8Array
}

export class BandColours {
  private colouring: Colouring | null = null
  private matches: Matches | null = null
  /** The keys last sent to the worker, by device; none: bands are named by their stacks, which is version 0. */
  private readonly cache = new Map<
    number,
    { version: number; keys: Uint32Array | null; mask: Uint8Array | null; shown: BandKeys['shown'] }
  >()

  /** The last table, so that callers can compare objects. */
  private readonly made = new Memo<Uint8Array>()

  constructor(private readonly client: DataClient) {}

  /** As the state requires; both null before the columns have arrived. */
  set(colouring: Colouring | null, matches: Matches | null): void {
    this.colouring = colouring
    this.matches = matches
  }

  /** Sends changed keys to the worker, so that tiles requested from now on have these. */
  update(device: number, state: State, dark: boolean, panel: Rgb, shown: BandKeys['shown'] = null): BandPalette {
    const { colouring, matches } = this
    if (!colouring) return { version: this.cache.get(device)?.version ?? 0, rgba: this.provisional(state, dark) }
    const mask = matches?.mask ?? null
    const { hatched } = colouring
    const keys = colouring.by === 'stack' && !mask ? null : colouring.keys
    const sent = this.cache.get(device)
    if (keys !== (sent?.keys ?? null) || mask !== (sent?.mask ?? null) || shown !== (sent?.shown ?? null)) {
      const version = ++versions
      this.cache.set(device, { version, keys, mask, shown })
      const named = {
        version,
        keys: mask || hatched ? bandKeys(colouring.keys, hatched, mask) : keys,
        matched: mask !== null,
        shown: shown && { size: shown.size, allocated: shown.allocated },
      }
      this.client.setKeys(named, sent?.version ?? 0)
    }
    const version = this.cache.get(device)?.version ?? 0
    return { version, rgba: mask || hatched ? this.bandColours(colouring, mask !== null, panel) : colouring.rgba }
  }

  /** CSS colour of an allocation as the timeline shows it where it lies alone and matches; null before colours are known. */
  cssOf(id: number): string | null {
    const { colouring } = this
    return colouring && id >= 0 && id < colouring.keys.length ? cssOf(colouring, colouring.keys[id]) : null
  }

  /** The colouring in force as plain values, for tests: keys by allocation, and the red, green and blue of each key. */
  debug(): unknown {
    const { colouring, matches } = this
    return (
      colouring && {
        by: colouring.by,
        matches: matches && { count: matches.count, query: matches.query },
        keys: Array.from(colouring.keys),
        colours: Array.from({ length: colouring.count }, (_, key) => rgbOf(colouring, key)),
      }
    )
  }

  /** Until the page has the columns, tiles are named by stacks: under other colourings they show the shape alone. */
  private provisional(state: State, dark: boolean): Uint8Array {
    if (state.colour === 'stack' && state.query === '')
      return stackColours(STACKS_AT_LEAST, dark, largeStacks(this.client.devices[state.device]))
    return this.made.get(['grey', dark], () => greyColours(STACKS_AT_LEAST, dark))
  }

  /** The colours of `bandKeys`. */
  private bandColours({ rgba, count, hatched }: Colouring, hasMatches: boolean, panel: Rgb): Uint8Array {
    const variants = (hatched ? 2 : 1) * (hasMatches ? 2 : 1)
    return this.made.get([variants, count, rgba, ...panel], () => {
      const out = new Uint8Array(4 * variants * count)
      for (let key = 0; key < variants * count; key++) {
        const from = 4 * Math.floor(key / variants)
        const share = hasMatches && key % 2 === 0 ? FAINT : 1
        for (let part = 0; part < 3; part++)
          out[4 * key + part] = Math.round(share * rgba[from + part] + (1 - share) * panel[part])
        out[4 * key + 3] = hatched && key % variants >= variants / 2 ? HATCHED : 255
      }
      return out
    })
  }
}

/** Keys with what else a band's colour says: the last bit whether it matches, the one before whether it is hatched. */
function bandKeys(keys: Uint32Array, hatched: Uint8Array | null, mask: Uint8Array | null): Uint32Array {
  const out = keys.slice()
  for (const bit of [hatched, mask]) if (bit) for (let id = 0; id < out.length; id++) out[id] = 2 * out[id] + bit[id]
  return out
}
