// What colours stand for: keys, their names, queries and colours; bands named by keys; pictures that stay until new ones are there.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openClient } from '../src/worker/client'
import type { DeviceData, Stacks, TileKey } from '../src/data/model'
import { type QuadSource, type Surface, TileStage } from '../src/gl/tile-stage'
import { gridOf, rowHeight } from '../src/layout/grid'
import { tileSamples } from '../src/layout/sampling'
import { tileSpans } from '../src/layout/spans'
import { layOutTile } from '../src/layout/tile'
import { evaluateQuery } from '../src/search/matches'
import { COLOURS } from '../src/ui/state'
import { shortName } from '../src/ui/format'
import { makeColouring } from '../src/views/colouring'
import { categoryColour, namedColour, rampColour } from '../src/views/colours/palettes'
import { byBytes, heldAt, keysUsed } from '../src/views/colours/held'
import { oracleSpans } from './oracle'
import { reportOf } from './report'
import { random, randomDevice } from './trace'

const CATEGORIES = [
  'unknown',
  'parameter',
  'gradient',
  'optimizer state',
  'activation',
  'temporary',
  'input',
  'communication',
  'workspace',
  'kv cache',
]
const STACKS = { count: 60, frames: () => [], top: () => null } as unknown as Stacks

function device(events: number, seed: number): DeviceData {
  const d = randomDevice({ events, older: 50, stacks: 50, alloc: 0.52, size: (r) => Math.ceil(r() ** 9 * 3e9) }, seed)
  const r = random(seed)
  const pick = (length: number): Uint8Array => Uint8Array.from({ length: d.N }, () => Math.floor(r() * length))
  Object.assign(d.info, {
    streams: ['', '0', '7'],
    pools: ['', '(0, 0)', '(1, 20)'],
    categories: CATEGORIES,
    ghosts: 20,
    freed: 30,
  })
  return Object.assign(d, { stream: pick(3), pool: pick(3), category: pick(10) })
}

const key: TileKey = { device: 0, axis: 'event', level: 0, tile: 0, yLevel: 0, yTile: 0 }

test("an entry's query matches what has its key, and nothing else", () => {
  for (const d of [device(900, 1), device(30_000, 2)]) {
    for (const by of COLOURS) {
      const colouring = makeColouring(d, STACKS, by, false)
      assert.equal(colouring.keys.length, d.N)
      assert.equal(colouring.missing, by === 'step' ? 'no steps recorded' : null)
      for (const used of keysUsed(colouring)) {
        const query = colouring.queryOf(used)
        if (query === null) {
          assert.ok(by === 'step' || (by === 'stream' && d.info.streams[used] === ''), `${by} ${used}`)
          continue
        }
        const { mask } = evaluateQuery(d, STACKS, d.info, query)
        for (let id = 0; id < d.N; id++)
          assert.equal(mask[id] === 1, colouring.keys[id] === used, `${query}: ${id}, ${d.size[id]} B`)
      }
    }
  }
})

test('size classes are powers of two, ages powers of ten', () => {
  const d = device(900, 3)
  const nameOf = (size: number): string => {
    const one = { ...d, N: 1, size: Float64Array.of(size) }
    const colouring = makeColouring(one, STACKS, 'size', false)
    return colouring.nameOf(colouring.keys[0])
  }
  assert.deepEqual([0, 511, 512, 1023, 1024, 2 ** 20, 2 ** 21 - 1, 2 ** 30 - 1, 2 ** 30, 2 ** 40].map(nameOf), [
    '< 512 B',
    '< 512 B',
    '512 B to 1 KiB',
    '512 B to 1 KiB',
    '1 KiB to 2 KiB',
    '1 MiB to 2 MiB',
    '1 MiB to 2 MiB',
    '512 MiB to 1 GiB',
    '≥ 1 GiB',
    '≥ 1 GiB',
  ])
  const ageOf = (start: number, end: number): string => {
    const one = { ...d, N: 1, start: Int32Array.of(start), end: Int32Array.of(end) }
    const colouring = makeColouring(one, STACKS, 'age', false)
    return colouring.nameOf(colouring.keys[0])
  }
  assert.deepEqual(
    [ageOf(3, 12), ageOf(3, 13), ageOf(0, 100), ageOf(0, d.P - 1), ageOf(0, d.P)],
    ['under 10 events', '10 to 99 events', '100 to 999 events', '100 to 999 events', 'the whole trace'],
  )
})

test('what is held at a moment is the sum over what is live', () => {
  const d = device(5000, 4)
  for (const by of COLOURS) {
    const colouring = makeColouring(d, STACKS, by, false)
    for (const position of [0, 1, 700, d.info.peakEvent + 1, d.P - 1]) {
      const bytes = new Map<number, number>()
      for (let id = 0; id < d.N; id++) {
        if (d.start[id] <= position && position < d.end[id])
          bytes.set(colouring.keys[id], (bytes.get(colouring.keys[id]) ?? 0) + d.size[id])
      }
      const held = heldAt(d, colouring, position)
      for (const used of keysUsed(colouring)) assert.equal(held.bytes[used], bytes.get(used) ?? 0)
      assert.equal(
        held.bytes.reduce((a, b) => a + b, 0),
        d.allocated[position],
      )
      const order = byBytes(keysUsed(colouring), held).map((used) => held.bytes[used])
      assert.deepEqual(
        order,
        [...order].sort((a, b) => b - a),
      )
    }
  }
})

test('bands are named by the heaviest key, and by a match where they hold one', () => {
  const d = device(2600, 5)
  const mask = Uint8Array.from(d.size, (size, id) => (size < 4e6 && id % 17 === 0 ? 1 : 0))
  let merged = 0
  for (const by of ['category', 'size', 'stack'] as const) {
    const { keys } = makeColouring(d, STACKS, by, false)
    for (const bandKeys of [
      { version: 1, keys, matched: false },
      { version: 2, keys: keys.map((k, id) => 2 * k + mask[id]), matched: true },
    ]) {
      const lives = { ...d, clockUs: null, bandKeys }
      for (const level of [0, 1]) {
        const { s } = tileSamples(d, { ...key, level })
        const tolerance = rowHeight(gridOf(d, 'event'), 0)
        const spans = tileSpans(lives, s, tolerance)
        const rows = Array.from({ length: spans.count }, (_, i) => ({
          first: spans.first[i],
          length: spans.length[i],
          rep: spans.rep[i],
          stack: spans.stack[i],
          members: spans.members[i],
          bytes: spans.bytes[i],
        }))
        assert.deepEqual(rows, oracleSpans(lives, s, tolerance))
        if (bandKeys.matched) merged += rows.filter(({ stack, members }) => stack & 1 && members > 1).length
      }
      const mesh = layOutTile({ ...d.info, ...lives }, key)
      assert.equal(mesh.version, bandKeys.version)
    }
  }
  assert.ok(merged > 100, `${merged} merged bands hold a match: too few to test with`)
})

test('the worker names tiles by the keys of now, and stored tiles are of stacks alone', async () => {
  const d = randomDevice({ events: 2600, older: 30, stacks: 7, alloc: 0.5, size: (r) => Math.ceil(r() ** 9 * 1e9) }, 11)
  const blobs = reportOf(d, [0])
  const client = await openClient({ names: () => Object.keys(blobs), text: (name) => blobs[name] }, '')
  assert.deepEqual([(await client.tile(key)).version, (await client.tile(key)).samples.length], [0, 0])
  const keys = Uint32Array.from({ length: d.N }, (_, id) => id % 5)
  const early = client.tile(key)
  client.setKeys(0, { version: 3, keys, matched: false })
  client.cancel(key)
  const late = client.tile(key)
  await assert.rejects(early, { name: 'TileCancelled' })
  const source = { ...d.info, ...d, clockUs: null, bandKeys: { version: 3, keys, matched: false } }
  assert.deepEqual(await late, layOutTile(source, key))
  client.setKeys(0, { version: 4, keys: null, matched: false })
  assert.deepEqual({ ...(await client.tile(key)), version: 0 }, layOutTile({ ...d.info, ...d, clockUs: null }, key))
})

class CountingStage extends TileStage {
  readonly quadsPerFrame = { still: 10, moving: 5 }
  readonly isSoftware = true
  made = 0
  setColours(): void {}
  draw(): void {}
  isReady(): boolean {
    return true
  }
  prepareAll(): void {}
  protected make(width: number, height: number): Surface {
    this.made++
    return { width, height }
  }
  protected isCurrent(): boolean {
    return true
  }
  protected isAlive(): boolean {
    return true
  }
  protected paintQuads(): void {}
  protected free(): void {}
}

test('a picture stays until the one in new keys is painted, and is never painted in colours of others', () => {
  const stage = new CountingStage(1e9)
  const source = (version: number): QuadSource => ({
    quads: 15,
    rects: new Float32Array(60),
    xSpan: 1,
    ySpan: 1,
    version,
    keyOf: () => 0,
  })
  stage.add('a', source(0), 8, 8, 1)
  stage.paint(['a'], Infinity)
  const old = stage.picture('a')
  assert.ok(old)
  stage.keysVersion = 1
  assert.deepEqual([stage.has('a'), stage.needsPaint('a'), stage.picture('a') === old], [false, false, true])
  assert.equal(stage.paint(['a'], Infinity), false)
  assert.equal(stage.made, 1)
  stage.add('a', source(1), 8, 8, 1)
  assert.deepEqual([stage.has('a'), stage.needsPaint('a'), stage.picture('a') === old], [true, true, true])
  assert.equal(stage.paint(['a'], 10), true)
  assert.equal(stage.picture('a'), old, 'half painted')
  stage.paint(['a'], 1000)
  assert.ok(stage.picture('a') !== old && !stage.needsPaint('a'))
})

type Rgb = readonly [number, number, number]

/** Full loss of one kind of cone, on linear light (Viénot, Brettel and Mollon 1999). */
const VISIONS: Record<string, readonly (readonly number[])[]> = {
  all: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  'no long cones': [
    [0.11238, 0.88762, 0],
    [0.11238, 0.88762, 0],
    [0.00401, -0.00401, 1],
  ],
  'no middle cones': [
    [0.29275, 0.70725, 0],
    [0.29275, 0.70725, 0],
    [-0.02234, 0.02234, 1],
  ],
}

function lab(rgb: Rgb, vision: readonly (readonly number[])[]): number[] {
  const linear = rgb.map((part) => (part <= 10.3 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4))
  const [r, g, b] = vision.map((row) => row.reduce((sum, factor, i) => sum + factor * linear[i], 0))
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ]
}

test('what is unknown is no activation, with any kind of colour vision and with none', () => {
  // Loss of the short cones: Machado, Oliveira and Fernandes 2009. Without any cones light alone counts.
  const visions = {
    ...VISIONS,
    'no short cones': [
      [1.255528, -0.076749, -0.178779],
      [-0.078411, 0.930809, 0.147602],
      [0.004733, 0.691367, 0.3039],
    ],
    'no cones': [0, 1, 2].map(() => [0.2126, 0.7152, 0.0722]),
  }
  for (const dark of [false, true]) {
    for (const [vision, matrix] of Object.entries(visions)) {
      const [one, other] = ['activation', 'unknown'].map((name) => lab(categoryColour(name, 0, dark), matrix))
      const distance = Math.hypot(...one.map((part, k) => part - other[k]))
      assert.ok(distance > 0.15, `${distance.toFixed(3)} apart: ${vision}, ${dark ? 'dark' : 'light'}`)
    }
  }
})

test('categories can be told apart with any kind of colour vision, and classes climb in lightness', () => {
  for (const dark of [false, true]) {
    for (const [vision, matrix] of Object.entries(VISIONS)) {
      const labs = CATEGORIES.map((name, i) => lab(categoryColour(name, i, dark), matrix))
      for (let i = 0; i < labs.length; i++) {
        for (let j = 0; j < i; j++) {
          const distance = Math.hypot(...labs[i].map((part, k) => part - labs[j][k]))
          assert.ok(
            distance > 0.09,
            `${CATEGORIES[i]} and ${CATEGORIES[j]} are ${distance.toFixed(3)} apart: ${vision}, ${dark ? 'dark' : 'light'}`,
          )
        }
      }
    }
    const lightness = Array.from({ length: 23 }, (_, i) => lab(rampColour(i / 22, dark), VISIONS.all)[0])
    for (let i = 1; i < 23; i++) assert.ok(dark ? lightness[i] > lightness[i - 1] : lightness[i] < lightness[i - 1])
    assert.equal(new Set(Array.from({ length: 40 }, (_, i) => namedColour(i, dark).join())).size, 40)
  }
})

test('names of C++ functions are told by their ends, others as they are', () => {
  const cases = [
    [
      'torch::autograd::generated::DivBackward0::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)',
      'DivBackward0::apply',
    ],
    ['at::Tensor at::_sum_to<c10::SymInt>(at::Tensor, c10::ArrayRef<c10::SymInt>, bool)', 'at::_sum_to'],
    ['at::native::(anonymous namespace)::fill(at::Tensor&)  Fill.cpp:12', 'native::fill  Fill.cpp:12'],
    ['std::function<void ()>::operator()() const', 'function::operator'],
    ['forward  modules/linear.py:134', 'forward  modules/linear.py:134'],
    ['::', '::'],
    ['activation', 'activation'],
  ]
  for (const [name, short] of cases) assert.equal(shortName(name), short)
})
