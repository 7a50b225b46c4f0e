// The parts of the picture that need no canvas: which tiles cover a window, curves by range, the address of a view.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Address, chooseLevels, coverWindow, type Grid, regionOf, neededTiles } from '../src/gl/cover'
import { readHash, writeHash } from '../src/app/hash'
import type { State } from '../src/ui/state'
import { RangeMax } from '../src/views/shared/scene'

const GRID: Grid = {
  x0: -1,
  y0: 0,
  width: 1024 * 64,
  height: 1 << 30,
  xEnd: 50_000,
  yEnd: 1 << 30,
  maxLevel: 6,
  maxYLevel: 20,
  columns: 1024,
  rows: 1024,
}

function random(seed: number): () => number {
  let state = seed
  return () => ((state = Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32
}

test('as long as the coarsest tile is there, every place of a window shows something', () => {
  const next = random(7)
  for (let round = 0; round < 300; round++) {
    const x0 = -1 + next() * 40_000
    const y0 = next() * 2 ** 29
    const window = { x0, x1: x0 + 1 + next() * 9000, y0, y1: y0 + 100 + next() * 2 ** 29 }
    const [level, yLevel] = chooseLevels(GRID, window, 1400, 700)
    const wanted = neededTiles(GRID, window, level, yLevel)
    const ready = new Map<string, boolean>([['0.0.0.0', true]])
    const isReady = (a: Address): boolean => {
      const id = `${a.level}.${a.tile}.${a.yLevel}.${a.yTile}`
      if (!ready.has(id)) ready.set(id, next() < 0.3)
      return ready.get(id)!
    }
    const shown = coverWindow(GRID, wanted, isReady)
    for (let probe = 0; probe < 20; probe++) {
      const x = Math.min(GRID.xEnd - 1, window.x0 + next() * (window.x1 - window.x0))
      const y = Math.min(GRID.yEnd - 1, window.y0 + next() * (window.y1 - window.y0))
      const over = shown.filter(({ region }) => x >= region.x0 && x < region.x1 && y >= region.y0 && y < region.y1)
      assert.ok(over.length > 0, `hole at ${x}, ${y}`)
      for (const { address, region } of over) {
        assert.ok(isReady(address), 'shows a tile that is not finished')
        const own = regionOf(GRID, address)
        assert.ok(
          region.x0 >= own.x0 && region.x1 <= own.x1 && region.y0 >= own.y0 && region.y1 <= own.y1,
          'shows more than the tile holds',
        )
      }
    }
  }
})

test('the finest level is chosen where a column would be wider than a pixel and a half', () => {
  assert.deepEqual(chooseLevels(GRID, { x0: -1, x1: 65_535, y0: 0, y1: 1 << 30 }, 1024, 1024), [0, 0])
  assert.equal(chooseLevels(GRID, { x0: 0, x1: 10, y0: 0, y1: 1 << 30 }, 1024, 1024)[0], GRID.maxLevel)
})

test('RangeMax finds the first greatest value of any range', () => {
  const next = random(3)
  for (const length of [1, 2, 63, 64, 65, 4096, 4097, 20_000]) {
    const values = Float64Array.from({ length }, () => Math.floor(next() * 50))
    const greatest = new RangeMax(values)
    for (let round = 0; round < 200; round++) {
      const from = Math.floor(next() * length)
      const to = from + 1 + Math.floor(next() * (length - from))
      let best = from
      for (let i = from; i < to; i++) if (values[i] > values[best]) best = i
      assert.equal(greatest.argmax(from, to), best, `[${from}, ${to}) of ${length}`)
    }
  }
})

test('a view survives its address, and nonsense in an address is passed over', () => {
  const start: State = {
    device: 0,
    view: 'timeline',
    axis: 'event',
    x: null,
    y: null,
    select: null,
    oom: null,
    stack: null,
    query: '',
    at: null,
    colour: 'stack',
    options: {},
    theme: 'system',
    noise: false,
  }
  assert.equal(writeHash(start, start), '')
  const state: State = {
    ...start,
    device: 2,
    view: 'summary',
    axis: 'time',
    x: [-1, 22.5],
    y: [0, 2 ** 40],
    select: 0,
    query: 'file:"a b" size>1MiB&x=1',
    theme: 'dark',
    noise: true,
  }
  assert.deepEqual(readHash(writeHash(state, start), start, 3), state)
  assert.deepEqual(readHash('#device=9&x=5..2&y=a..b&select=-4&view=none&theme=pink&%', start, 3), start)
})
