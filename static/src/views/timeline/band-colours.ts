// The keys of the timeline's bands, and the colour of every key: the chosen colouring, and with a query
// one colour for matches and a faint one for the rest.

import type { DataClient } from '../../worker/data-client'
import type { Matches } from '../../search/matches'
import type { State } from '../../ui/state'
import type { Colouring } from '../colouring'
import { greyColours, stackColours, STACKS_AT_LEAST } from '../shared/colours'

type Rgb = readonly [number, number, number, ...number[]]

/** The share of its colour that a band without a match keeps; the rest is the panel's. */
const FAINT = 0.24

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
  private readonly cache = new Map<number, { version: number; keys: Uint32Array | null; mask: Uint8Array | null }>()
  private versions = 0
  private made: { key: string; from: Uint8Array | null; rgba: Uint8Array } | null = null

  constructor(private readonly client: DataClient) {}

  /** As the state requires; both null before the columns have arrived. */
  set(colouring: Colouring | null, matches: Matches | null): void {
    this.colouring = colouring
    this.matches = matches
  }

  /** Sends changed keys to the worker, so that tiles requested from now on have these. */
  update(device: number, state: State, dark: boolean, panel: Rgb): BandPalette {
    const { colouring, matches } = this
    if (!colouring) return { version: this.cache.get(device)?.version ?? 0, rgba: this.provisional(state, dark) }
    const mask = matches?.mask ?? null
    const keys = colouring.by === 'stack' && !mask ? null : colouring.keys
    const sent = this.cache.get(device)
    if (keys !== (sent?.keys ?? null) || mask !== (sent?.mask ?? null)) {
      const version = ++this.versions
      this.cache.set(device, { version, keys, mask })
      this.client.setKeys(device, {
        version,
        keys: mask ? matchedKeys(colouring.keys, mask) : keys,
        matched: mask !== null,
      })
    }
    const version = this.cache.get(device)?.version ?? 0
    return { version, rgba: mask ? this.matchedColours(colouring, panel) : colouring.rgba }
  }

  /** CSS colour of an allocation as the timeline shows it where it lies alone and matches; null before colours are known. */
  cssOf(id: number): string | null {
    const { colouring } = this
    if (!colouring || id < 0 || id >= colouring.keys.length) return null
    const at = 4 * colouring.keys[id]
    return `rgb(${colouring.rgba.subarray(at, at + 3).join(' ')})`
  }

  /** The colouring in force as plain values, for tests: keys by allocation, and the red, green and blue of each key. */
  debug(device: number): unknown {
    const { colouring, matches } = this
    return (
      colouring && {
        by: colouring.by,
        version: this.cache.get(device)?.version ?? 0,
        matches: matches && { count: matches.count, query: matches.query },
        keys: Array.from(colouring.keys),
        colours: Array.from({ length: colouring.count }, (_, key) =>
          Array.from(colouring.rgba.subarray(4 * key, 4 * key + 3)),
        ),
      }
    )
  }

  /** The file's own tiles are named by stacks: under other colourings they show the shape alone. */
  private provisional(state: State, dark: boolean): Uint8Array {
    if (state.colour === 'stack' && state.query === '') return stackColours(STACKS_AT_LEAST, dark)
    return this.keep(`grey ${dark}`, null, () => greyColours(STACKS_AT_LEAST, dark))
  }

  private matchedColours({ rgba, count }: Colouring, panel: Rgb): Uint8Array {
    return this.keep(`matched ${count} ${panel.join()}`, rgba, () => {
      const out = new Uint8Array(8 * count)
      for (let key = 0; key < count; key++) {
        for (let part = 0; part < 3; part++) {
          const full = rgba[4 * key + part]
          out[8 * key + part] = Math.round(FAINT * full + (1 - FAINT) * panel[part])
          out[8 * key + 4 + part] = full
        }
        out[8 * key + 3] = out[8 * key + 7] = 255
      }
      return out
    })
  }

  /** The last table where it would be the same, so that callers can compare objects. */
  private keep(key: string, from: Uint8Array | null, make: () => Uint8Array): Uint8Array {
    if (this.made?.key !== key || this.made.from !== from) this.made = { key, from, rgba: make() }
    return this.made.rgba
  }
}

/** 2 * key + 1 for what matches, 2 * key for the rest. */
function matchedKeys(keys: Uint32Array, mask: Uint8Array): Uint32Array {
  const out = new Uint32Array(keys.length)
  for (let id = 0; id < out.length; id++) out[id] = 2 * keys[id] + mask[id]
  return out
}
