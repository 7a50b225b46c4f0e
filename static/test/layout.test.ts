import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { DeviceData, TileKey, TileMesh } from '../src/data/model'
import { atEvent } from '../src/layout/format'
import { columnWidth, COLUMNS, gridOf, rowHeight, ROWS, tileCount } from '../src/layout/grid'
import { offsetOf, path, pick } from '../src/layout/pick'
import { layOutTile } from '../src/layout/tile'
import { liveIds, type OracleSpan, oracleSpans, spansOf, tileSamples } from './oracle'
import { random, randomDevice, tileSource, type TraceShape } from './trace'

const SHAPES: TraceShape[] = [
  { events: 700, older: 40, stacks: 5, alloc: 0.55, size: (r) => Math.floor(r() ** 8 * 1e9), times: true },
  { events: 3000, older: 0, stacks: 3, alloc: 0.5, size: () => 512, times: true },
  {
    events: 4200,
    older: 200,
    stacks: 50,
    alloc: 0.52,
    size: (r) => (r() < 0.1 ? 0 : Math.ceil(r() ** 20 * 1e11)),
    times: true,
  },
  { events: 1, older: 0, stacks: 1, alloc: 1, size: () => 7, times: true },
  { events: 0, older: 3, stacks: 1, alloc: 0, size: () => 1000 },
  { events: 0, older: 0, stacks: 1, alloc: 0, size: () => 1000 },
]
const DEVICES = SHAPES.flatMap((shape, i) =>
  (shape.events > 1000 ? [1] : [1, 2, 3]).map((seed) => randomDevice(shape, 100 * i + seed)),
)

function* tiles(d: DeviceData, yLevels = [0, 3]): Generator<TileKey> {
  for (const axis of d.clockUs ? (['event', 'time'] as const) : (['event'] as const)) {
    const grid = gridOf(d, axis)
    for (const level of new Set([0, 1, Math.floor(grid.depth / 2), grid.depth])) {
      if (level > grid.depth) continue
      const count = tileCount(grid, level)
      const middle = Math.floor(count / 2)
      // The slow side is cubic: with every tile, two large devices took 14 of the 17 s of all tests of the layout.
      const isLarge = d.n > 1000
      for (const tile of isLarge ? [middle] : new Set([0, middle, count - 1])) {
        for (const yLevel of isLarge ? [yLevels[level % yLevels.length]] : yLevels)
          yield { device: 0, axis, level, tile, yLevel, yTile: 0 }
      }
    }
  }
}

test('spans are those of the description', () => {
  for (const d of DEVICES) {
    for (const key of tiles(d)) {
      const { s } = tileSamples(d, key)
      const tolerance = rowHeight(gridOf(d, key.axis), key.yLevel)
      assert.deepEqual(spansOf(d, s, tolerance), oracleSpans(d, s, tolerance), JSON.stringify(key))
    }
  }
})

test("every column's spans sum to what is allocated there, and its sample is the column's greatest", () => {
  for (const d of DEVICES) {
    const clock = [...(d.clockUs ?? [])].sort((a, b) => a - b)
    for (const key of tiles(d)) {
      const grid = gridOf(d, key.axis)
      const { s, exact } = tileSamples(d, key)
      const sums = new Float64Array(s.length)
      for (const { first, length, bytes } of spansOf(d, s, rowHeight(grid, key.yLevel)))
        for (let c = 0; c < length; c++) sums[first + c] += bytes
      const width = columnWidth(grid, key.level)
      const begin = key.tile * COLUMNS * width
      const before = (t: number) => {
        let low = 0
        for (let high = clock.length; low < high; ) {
          const middle = (low + high) >> 1
          if (clock[middle] < t) low = middle + 1
          else high = middle
        }
        return low
      }
      for (let c = 0; c < s.length; c++) {
        assert.equal(sums[c], d.allocated[s[c]])
        let from = begin + c * width
        let to = Math.min(from + width, d.P)
        if (key.axis === 'time') {
          to = before(from + width) + 1
          from = before(from)
        }
        const values = [...d.allocated.subarray(from, to)]
        assert.equal(s[c], from + values.indexOf(Math.max(...values)))
        if (exact) assert.ok(to - from <= (key.axis === 'time' ? 2 : 1))
      }
    }
  }
})

/** What quads stand for, of the spans at a tolerance: the span of each quad; undefined for one that has none. */
function spansOfQuads(
  d: DeviceData,
  key: TileKey,
  tolerance: number,
): (quad: number, mesh: TileMesh) => OracleSpan | undefined {
  const ofRep = new Map<number, OracleSpan[]>()
  for (const span of spansOf(d, tileSamples(d, key).s, tolerance)) {
    const same = ofRep.get(span.rep)
    if (same) same.push(span)
    else ofRep.set(span.rep, [span])
  }
  const width = columnWidth(gridOf(d, key.axis), key.level)
  return (quad, { rects, rep, stack }) => {
    const [from, to] = [rects[4 * quad] / width, rects[4 * quad + 1] / width]
    return ofRep
      .get(rep[quad])
      ?.find((span) => span.first <= from && to <= span.first + span.length && span.stack === stack[quad])
  }
}

test('a mesh lies where the spans do, to half a row', () => {
  for (const d of DEVICES) {
    for (const key of tiles(d)) {
      if (d.n === 4200 && key.level > 1) continue // the slow side is cubic
      const mesh = layOutTile(tileSource(d), key)
      const grid = gridOf(d, key.axis)
      const row = rowHeight(grid, key.yLevel)
      const width = columnWidth(grid, key.level)
      const { s, exact } = tileSamples(d, key)
      assert.equal(mesh.exact, exact)
      const spanOf = spansOfQuads(d, key, row)
      const covered = new Float64Array(s.length)
      for (let q = 0; q < mesh.quads; q++) {
        const [xa, xb, ya, yb] = mesh.rects.subarray(4 * q, 4 * q + 4)
        const id = mesh.rep[q]
        const span = spanOf(q, mesh)
        assert.ok(span, `quad ${q} is part of no span`)
        let low = Infinity
        let high = -Infinity
        for (let c = xa / width; c < xb / width; c++) {
          covered[c] += span.bytes
          if (span.members > 1) continue
          const offset = offsetOf(d, id, s[c])
          low = Math.min(low, offset)
          high = Math.max(high, offset)
        }
        if (span.members > 1) continue
        // A lone allocation's piece reaches from where it lies lowest to where it lies highest, so that no slit is left,
        // and the two are within a row of each other.
        const error = (y: number): number => Math.max(1, Math.abs(y)) * 2 ** -22
        assert.ok(Math.abs(ya - Math.max(low, -mesh.ySpan)) <= error(low), `${ya} ${low}`)
        const top = high + d.size[id]
        assert.ok(Math.abs(yb - Math.min(top, 2 * mesh.ySpan)) <= 2 * error(top), `${yb} ${top}`)
        assert.ok(high - low <= row + error(high), `${high} ${low}`)
      }
      if (key.yLevel === 0) for (let c = 0; c < covered.length; c++) assert.equal(covered[c], d.allocated[s[c]])
    }
  }
})

test('y tiles together hold what the whole height holds', () => {
  const d = DEVICES[4]
  for (const yLevel of [1, 3]) {
    const seen = new Set<number>()
    const key = { device: 0, axis: 'event', level: 2, tile: 1, yLevel } as const
    const grid = gridOf(d, 'event')
    const { s } = tileSamples(d, { ...key, yTile: 0 })
    for (let yTile = 0; yTile < 2 ** yLevel; yTile++) {
      const mesh = layOutTile(tileSource(d), { ...key, yTile })
      assert.equal(mesh.ySpan, ROWS * rowHeight(grid, yLevel))
      for (let q = 0; q < mesh.quads; q++) {
        seen.add(mesh.rep[q])
        assert.ok(mesh.rects[4 * q + 2] < mesh.ySpan && mesh.rects[4 * q + 3] > 0)
      }
    }
    const expected = new Set(
      spansOf(d, s, rowHeight(grid, yLevel))
        .filter((span) => span.bytes > 0)
        .map((span) => span.rep),
    )
    assert.deepEqual([...seen].sort(), [...expected].sort())
  }
})

test('a tile with too many quads is coarsened and keeps every byte', () => {
  const d = randomDevice({ events: 20000, older: 10, stacks: 9, alloc: 0.51, size: (r) => Math.ceil(r() * 4096) }, 5)
  const key: TileKey = { device: 0, axis: 'event', level: 0, tile: 0, yLevel: 0, yTile: 0 }
  assert.ok(layOutTile(tileSource(d), key).quads > 3000)
  const mesh = layOutTile(tileSource(d), key, 3000)
  assert.ok(mesh.quads <= 3000)
  const { s } = tileSamples(d, key)
  const width = mesh.xSpan / COLUMNS
  // It is the layout of some tolerance, in which its quads cover what is allocated at each sample.
  const isOf = (tolerance: number): boolean => {
    const spanOf = spansOfQuads(d, key, tolerance)
    const covered = new Float64Array(s.length)
    for (let q = 0; q < mesh.quads; q++) {
      const bytes = spanOf(q, mesh)?.bytes ?? NaN
      for (let c = mesh.rects[4 * q] / width; c < mesh.rects[4 * q + 1] / width; c++) covered[c] += bytes
    }
    return covered.every((bytes, c) => bytes === d.allocated[s[c]])
  }
  const row = rowHeight(gridOf(d, 'event'), 0)
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5, 6, 7, 8].filter((doublings) => isOf(row * 2 ** doublings)).map((doublings) => doublings > 0),
    [true],
  )
})

test('pick, offsetOf and path agree with counting', () => {
  const r = random(9)
  for (const d of DEVICES) {
    for (let i = 0; i < 60; i++) {
      const s = Math.floor(r() * d.P)
      const live = liveIds(d, s)
      const byte = Math.floor(r() * d.allocated[s] * 1.1)
      let top = 0
      const expected = live.find((id) => (top += d.size[id]) > byte) ?? -1
      assert.equal(pick(d, s, byte), expected)
      if (expected >= 0)
        assert.ok(offsetOf(d, expected, s) <= byte && byte < offsetOf(d, expected, s) + d.size[expected])
    }
    assert.equal(pick(d, 0, -1), -1)
    assert.equal(pick(d, 0, NaN), -1)
    for (const key of tiles(d, [0])) {
      const { s } = tileSamples(d, key)
      for (let i = 0; i < 3 && d.N > 0; i++) {
        const id = Math.floor(r() * d.N)
        assert.deepEqual(
          [...path(d, id, s)],
          Array.from(s, (at) => offsetOf(d, id, at)),
        )
      }
    }
  }
})

test('the state before the first event is after none', () => {
  assert.deepEqual([-1, 0, 1234].map(atEvent), ['before the first event', 'at event 0', 'at event 1,234'])
})
