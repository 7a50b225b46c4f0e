// What colours stand for: keys, their names, queries and colours; bands named by keys; pictures that stay until new ones are there.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openClient } from '../src/worker/client'
import type { DeviceData, Stacks, TileKey } from '../src/data/model'
import { type QuadSource, type Surface, TileStage } from '../src/gl/tile-stage'
import { gridOf, rowHeight } from '../src/layout/grid'
import { layOutTile } from '../src/layout/tile'
import { evaluateQuery } from '../src/search/matches'
import { fillQuads, HATCHED } from '../src/gl/flat-stage'
import { startColour, startView } from '../src/app/start-state'
import { COLOURS, type State } from '../src/ui/state'
import { stackColours } from '../src/views/shared/colours'
import { BandColours } from '../src/views/timeline/band-colours'
import type { DataClient } from '../src/worker/data-client'
import { shortName } from '../src/ui/format'
import { makeColouring } from '../src/views/colouring'
import { categoryColour, namedColour, rampColour } from '../src/views/colours/palettes'
import { byBytes, heldAt, keysUsed } from '../src/views/colours/held'
import { oracleSpans, spansOf, tileSamples } from './oracle'
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
    for (const position of [0, 1, 700, d.info.peak_event + 1, d.P - 1]) {
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
      const lives = { ...d, axisUs: null, bandKeys }
      for (const level of [0, 1]) {
        const { s } = tileSamples(d, { ...key, level })
        const tolerance = rowHeight(gridOf(d, 'event'), 0)
        const rows = spansOf(lives, s, tolerance)
        assert.deepEqual(rows, oracleSpans(lives, s, tolerance))
        if (bandKeys.matched) merged += rows.filter(({ stack, members }) => stack & 1 && members > 1).length
      }
      const mesh = layOutTile({ ...d.info, ...lives }, key)
      assert.equal(mesh.version, bandKeys.version)
    }
  }
  assert.ok(merged > 100, `${merged} merged bands hold a match: too few to test with`)
})

test('the worker names tiles by the keys of their version', async () => {
  const d = randomDevice({ events: 2600, older: 30, stacks: 7, alloc: 0.5, size: (r) => Math.ceil(r() ** 9 * 1e9) }, 11)
  const blobs = reportOf(d)
  const client = await openClient({ names: () => Object.keys(blobs), text: (name) => blobs[name] }, '')
  assert.equal((await client.tile(key)).version, 0)
  const keys = Uint32Array.from({ length: d.N }, (_, id) => id % 5)
  const [third, fourth] = [3, 4].map((version) => ({ ...key, version }))
  const early = client.tile(key)
  client.setKeys({ version: 3, keys, matched: false }, 0)
  client.cancel(key)
  const late = client.tile(third)
  await assert.rejects(early, { name: 'TileCancelled' })
  const source = { ...d.info, ...d, axisUs: null, bandKeys: { version: 3, keys, matched: false } }
  assert.deepEqual(await late, layOutTile(source, third))
  // Two timelines of a device, side by side, have keys of their own: each gets its tiles, and may cancel those alone.
  client.setKeys({ version: 4, keys: null, matched: false }, 0)
  const both = Promise.all([client.tile(third), client.tile(fourth)])
  client.cancel(key)
  const [coloured, plain] = await both
  assert.deepEqual(coloured, await late)
  assert.deepEqual({ ...plain, version: 0 }, layOutTile({ ...d.info, ...d, axisUs: null }, key))
  client.setKeys({ version: 5, keys, matched: false }, 3)
  assert.deepEqual([(await client.tile(third)).version, (await client.tile(fourth)).version], [0, 4])
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

/** Machado, Oliveira and Fernandes 2009, severity 1, on linear light. */
const MACHADO: Record<string, readonly (readonly number[])[]> = {
  all: VISIONS.all,
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
}

/** CIE L*a*b* under D65. */
function cieLab(rgb: Rgb, vision: readonly (readonly number[])[]): number[] {
  const linear = rgb.map((part) => (part <= 10.3 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4))
  const [r, g, b] = vision.map((row) => row.reduce((sum, factor, i) => sum + factor * linear[i], 0))
  const [x, y, z] = [
    (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047,
    0.2126729 * r + 0.7151522 * g + 0.072175 * b,
    (0.0193339 * r + 0.119192 * g + 0.9503041 * b) / 1.08883,
  ].map((value) => (value > 216 / 24389 ? Math.cbrt(value) : ((24389 / 27) * value + 16) / 116))
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)]
}

/** CIEDE2000 after Sharma, Wu and Dalal 2005. */
function ciede2000([l1, a1, b1]: number[], [l2, a2, b2]: number[]): number {
  const rad = Math.PI / 180
  const mean7 = ((Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2) ** 7
  const grey = 1.5 - 0.5 * Math.sqrt(mean7 / (mean7 + 25 ** 7))
  const [c1, c2] = [Math.hypot(grey * a1, b1), Math.hypot(grey * a2, b2)]
  const [h1, h2] = [Math.atan2(b1, grey * a1) / rad, Math.atan2(b2, grey * a2) / rad].map((h) => (h + 360) % 360)
  let dh = h2 - h1
  if (Math.abs(dh) > 180) dh -= 360 * Math.sign(dh)
  const [l, c, h] = [(l1 + l2) / 2, (c1 + c2) / 2, h1 + dh / 2]
  const t =
    1 -
    0.17 * Math.cos((h - 30) * rad) +
    0.24 * Math.cos(2 * h * rad) +
    0.32 * Math.cos((3 * h + 6) * rad) -
    0.2 * Math.cos((4 * h - 63) * rad)
  const dl = (l2 - l1) / (1 + (0.015 * (l - 50) ** 2) / Math.sqrt(20 + (l - 50) ** 2))
  const dc = (c2 - c1) / (1 + 0.045 * c)
  const dH = (2 * Math.sqrt(c1 * c2) * Math.sin((dh / 2) * rad)) / (1 + 0.015 * c * t)
  const turn = -2 * Math.sqrt(c ** 7 / (c ** 7 + 25 ** 7)) * Math.sin(60 * Math.exp(-(((h - 275) / 25) ** 2)) * rad)
  return Math.sqrt(dl ** 2 + dc ** 2 + dH ** 2 + turn * dc * dH)
}

test('the distance of colours is that of its authors', () => {
  // Sharma, Wu and Dalal 2005, table 1.
  const pairs: [number[], number[], number][] = [
    [[50, 2.6772, -79.7751], [50, 0, -82.7485], 2.0425],
    [[50, -1, 2], [50, 0, 0], 2.3669],
    [[50, 2.5, 0], [73, 25, -18], 27.1492],
    [[22.7233, 20.0904, -46.694], [23.0331, 14.973, -42.5619], 2.0373],
    [[90.8027, -2.0831, 1.441], [91.1528, -1.6435, 0.0447], 1.4441],
  ]
  for (const [one, other, distance] of pairs) assert.ok(Math.abs(ciede2000(one, other) - distance) < 1e-3)
})

test('categories stay apart from each other and from unknown under deuteranopia and protanopia, in any shade', () => {
  for (const dark of [false, true]) {
    for (const [vision, matrix] of Object.entries(MACHADO)) {
      const shades = CATEGORIES.map((name, i) =>
        [0.95, 1.05].map((shade) =>
          cieLab(categoryColour(name, i, dark).map((part) => Math.min(255, part * shade)) as unknown as Rgb, matrix),
        ),
      )
      for (let i = 0; i < shades.length; i++) {
        for (let j = 0; j < i; j++) {
          const distance = Math.min(...shades[i].flatMap((one) => shades[j].map((other) => ciede2000(one, other))))
          assert.ok(
            distance > 12,
            `${CATEGORIES[i]}, ${CATEGORIES[j]}: ${distance.toFixed(1)}, ${vision}, dark: ${dark}`,
          )
        }
      }
    }
  }
})

test('no two of the largest stacks look alike', () => {
  const r = random(8)
  for (let round = 0; round < 60; round++) {
    const count = 20 + Math.floor(r() ** 3 * 6000)
    const large = [...new Set(Array.from({ length: 10 }, () => Math.floor(r() * count)))]
    const rgba = stackColours(count, round % 2 === 1, large)
    const labs = large.map((key) => lab([rgba[4 * key], rgba[4 * key + 1], rgba[4 * key + 2]], VISIONS.all))
    for (let i = 0; i < labs.length; i++)
      for (let j = 0; j < i; j++)
        assert.ok(Math.hypot(...labs[i].map((part, k) => part - labs[j][k])) > 0.055, `${large[i]} and ${large[j]}`)
    const plain = stackColours(count, round % 2 === 1)
    const moved = Array.from({ length: count }, (_, key) => key).filter((key) =>
      [0, 1, 2].some((part) => rgba[4 * key + part] !== plain[4 * key + part]),
    )
    assert.ok(
      moved.every((key) => large.includes(key) && key !== large[0]),
      'only what gives way has another colour',
    )
  }
})

test('sizes that are there have the whole range of colours', () => {
  const d = device(900, 3)
  const colouring = makeColouring({ ...d, N: 3, size: Float64Array.of(4096, 9000, 70_000) }, STACKS, 'size', false)
  const colours = [...colouring.keys].map((key) => [...colouring.rgba.subarray(4 * key, 4 * key + 3)])
  assert.deepEqual([colours[0], colours[2]], [rampColour(0, false), rampColour(1, false)])
})

test('what is inferred is hatched, with and without a query', () => {
  const d = device(900, 4)
  d.info.category_sources = ['unknown', 'inferred', 'stack']
  d.categorySource = Uint8Array.from({ length: d.N }, (_, id) => id % 3)
  const colouring = makeColouring(d, STACKS, 'category', false)
  const sent: (Uint32Array | null)[] = []
  const client = { setKeys: (keys: { keys: Uint32Array | null }) => sent.push(keys.keys), devices: [d.info] }
  const bands = new BandColours(client as unknown as DataClient)
  for (const query of ['', 'size>1MiB']) {
    const matches = query ? evaluateQuery(d, STACKS, d.info, query) : null
    bands.set(colouring, matches)
    const { rgba } = bands.update(0, { colour: 'category', query } as State, false, [255, 255, 255])
    const keys = sent.at(-1)!
    for (let id = 0; id < d.N; id++) {
      assert.equal(rgba[4 * keys[id] + 3] === HATCHED, id % 3 === 1)
      if (!matches || matches.mask[id])
        assert.deepEqual(
          [...rgba.subarray(4 * keys[id], 4 * keys[id] + 3)],
          categoryColour(CATEGORIES[d.category[id]], 0, false),
        )
    }
  }
})

test('a hatched band has another pixel in every row, a plain one has none', () => {
  const words = new Uint32Array(36 * 12)
  const source: QuadSource = {
    rects: Float32Array.of(0, 36, 0, 12),
    ySpan: 12,
    keyOf: () => 0,
  } as unknown as QuadSource
  for (const alpha of [255, HATCHED]) {
    fillQuads({ words, width: 36, height: 12 }, Uint8Array.of(90, 60, 140, alpha), source, 0, 1, 36)
    const usual = words[0] === words[1] ? words[0] : words[2]
    for (let row = 0; row < 11; row++)
      assert.equal(
        words.subarray(36 * row, 36 * row + 36).filter((word) => word !== usual).length,
        alpha === 255 ? 0 : 6,
      )
  }
})

test('a file with a final state only opens on its segments', () => {
  const of = (ghosts: number, segments: number) => {
    const { info } = device(10, 1)
    return startView({ ...info, ghosts, allocations: 5, stats: { ...info.stats, segments } })
  }
  // Also one whose trace allocates and frees nothing.
  assert.deepEqual([of(5, 3), of(5, 0), of(4, 3)], ['segments', 'timeline', 'timeline'])
})

test('a report opens coloured by category where most bytes at the peak have one', () => {
  const of = (named_bytes: number, left_out: string[] = []) =>
    startColour({ ...device(10, 1).info, peak_bytes: 100, named_bytes, left_out })
  assert.deepEqual([of(51), of(50), of(0), of(90, ['category'])], ['category', 'stack', 'stack', 'stack'])
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
