// What an allocation is coloured by, as a key, with the name, the colour and the query of every key.

import { quoted } from '../../search/grammar'
import type { DeviceData, Stacks } from '../../data/model'
import { OUTSIDE_STEPS, stepQueries } from '../../search/steps'
import { stepRanges, stepsOf } from '../../steps/steps'
import type { ColourBy } from '../../ui/state'
import { AGE_CLASSES, ageClass, ageName, ageQuery, SIZE_CLASSES, sizeClass, sizeName, sizeQuery } from './classes'
import { categoryColour, namedColour, rampColour, unknownColour } from './palettes'

export interface Keys {
  /** Length N. */
  keys: Uint32Array
  count: number
  nameOf(key: number): string
  /** The query that matches this key and nothing else; null: there is none. */
  queryOf(key: number): string | null
  /** Of stacks null: they have a table of their own. */
  colourOf: ((key: number, dark: boolean) => [number, number, number]) | null
}

const ORIGINS = ['ghost', 'freed', 'traced']
const ORIGIN_NAMES = [
  'ghost: in the final state, its alloc not in the trace',
  'freed: its free in the trace, its alloc not',
  'traced',
]

/** Why a device cannot be coloured this way; null when it can. */
export function whyNot(info: DeviceData['info'], by: ColourBy): string | null {
  if (by === 'step' && !stepRanges(info)) return 'no steps recorded'
  if ((by === 'stream' || by === 'pool' || by === 'stack' || by === 'category') && info.left_out.includes(by)) {
    return `${by} left out of this report to fit its size`
  }
  return null
}

/** A legend may describe the stack itself; `stackName` names it in a line. */
export function keysOf(data: DeviceData, stacks: Stacks, by: ColourBy, stackName: (stack: number) => string): Keys {
  const { info, N, P, start, end, size } = data
  const reason = whyNot(info, by)
  if (reason) {
    return {
      keys: new Uint32Array(N),
      count: 1,
      nameOf: () => reason,
      queryOf: () => null,
      colourOf: (_, dark) => unknownColour(dark),
    }
  }
  switch (by) {
    case 'stack':
      return {
        keys: data.stack,
        count: Math.max(1, stacks.count),
        nameOf: stackName,
        queryOf: (key) => `stack:${key}`,
        colourOf: null,
      }
    case 'category':
      return {
        keys: new Uint32Array(data.category),
        count: info.categories.length,
        nameOf: (key) => info.categories[key] ?? '?',
        queryOf: (key) => `category:${quoted(info.categories[key])}`,
        colourOf: (key, dark) => categoryColour(info.categories[key], key, dark),
      }
    case 'size': {
      const keys = keyed(N, (id) => sizeClass(size[id]))
      // The whole range of colours for the sizes that there are.
      const least = keys.reduce((low, key) => Math.min(low, key), SIZE_CLASSES)
      const most = keys.reduce((high, key) => Math.max(high, key), 0)
      return {
        keys,
        count: SIZE_CLASSES,
        nameOf: sizeName,
        queryOf: sizeQuery,
        colourOf: (key, dark) => rampColour((key - least) / Math.max(1, most - least), dark),
      }
    }
    case 'age':
      return {
        keys: keyed(N, (id) => ageClass(end[id] - start[id], P)),
        count: AGE_CLASSES,
        nameOf: ageName,
        queryOf: (key) => ageQuery(key, P),
        colourOf: (key, dark) => rampColour(key / (AGE_CLASSES - 1), dark),
      }
    case 'stream':
      return {
        keys: new Uint32Array(data.stream),
        count: info.streams.length,
        nameOf: (key) => (info.streams[key] ? `stream ${info.streams[key]}` : 'no stream recorded'),
        queryOf: (key) => (info.streams[key] ? `stream:${info.streams[key]}` : null),
        colourOf: (key, dark) => (info.streams[key] ? namedColour(key - 1, dark) : unknownColour(dark)),
      }
    case 'pool':
      return {
        keys: new Uint32Array(data.pool),
        count: info.pools.length,
        nameOf: (key) =>
          info.pools[key] === '(0, 0)'
            ? 'default pool'
            : info.pools[key]
              ? `pool ${info.pools[key]}`
              : 'no pool recorded',
        queryOf: (key) => `pool:${info.pools[key] ? quoted(info.pools[key]) : 'none'}`,
        colourOf: (key, dark) => (info.pools[key] ? namedColour(key - 1, dark) : unknownColour(dark)),
      }
    case 'step': {
      const steps = stepsOf(info, data)!
      const queries = [OUTSIDE_STEPS, ...stepQueries(steps)]
      return {
        keys: keyed(N, (id) => steps.of[id] + 1),
        count: steps.names.length + 1,
        nameOf: (key) => (key === 0 ? 'outside all steps' : steps.names[key - 1]),
        queryOf: (key) => queries[key],
        colourOf: (key, dark) => (key === 0 ? unknownColour(dark) : namedColour(key - 1, dark)),
      }
    }
    case 'origin':
      return {
        keys: keyed(N, (id) => (id < info.ghosts ? 0 : id < info.ghosts + info.freed ? 1 : 2)),
        count: ORIGINS.length,
        nameOf: (key) => ORIGIN_NAMES[key],
        queryOf: (key) => `origin:${ORIGINS[key]}`,
        colourOf: (key, dark) => namedColour([4, 1, 0][key], dark),
      }
  }
}

function keyed(N: number, keyOf: (id: number) => number): Uint32Array {
  const keys = new Uint32Array(N)
  for (let id = 0; id < N; id++) keys[id] = keyOf(id)
  return keys
}
