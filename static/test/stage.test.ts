// Painting by the processor, and the change from it to WebGL, with a stage made of nothing in WebGL's place.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fillQuads } from '../src/gl/flat-stage'
import { TileLayer, type TileProvider, type TileSource } from '../src/gl/tile-layer'
import { type Part, type QuadSource, type Surface, TileStage } from '../src/gl/tile-stage'

/** One palette entry per key: its number in red. */
const RGBA = Uint8Array.from({ length: 4 * 256 }, (_, i) => (i % 4 === 0 ? i / 4 : i % 4 === 3 ? 255 : 0))

function source(rects: number[], keys: number[], xSpan: number, ySpan: number): QuadSource {
  return {
    quads: keys.length,
    rects: Float32Array.from(rects),
    xSpan,
    ySpan,
    version: 0,
    keyOf: (quad) => ((keys[quad] << 8) | 128) >>> 0,
  }
}

test('a pixel belongs to the quad that holds its middle, upper rows first, later quads over earlier ones', () => {
  let seed = 5
  const next = (below: number): number => ((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32) * below
  for (let round = 0; round < 50; round++) {
    const width = 1 + Math.floor(next(60))
    const height = 1 + Math.floor(next(40))
    const rects: number[] = []
    for (let quad = 0; quad < 30; quad++) {
      const [x, y] = [next(110) - 5, next(2200) - 100]
      rects.push(x, x + next(50), y, y + next(300))
    }
    const quads = source(
      rects,
      Array.from({ length: 30 }, (_, i) => i + 1),
      100,
      2000,
    )
    const words = new Uint32Array(width * height)
    fillQuads({ words, width, height }, RGBA, quads, 0, 30, 100)
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++) {
        const x = ((column + 0.5) / width) * 100
        const y = ((row + 0.5) / height) * 2000
        let top = -1
        for (let q = 0; q < 30; q++) {
          const [xa, xb, ya, yb] = quads.rects.subarray(4 * q, 4 * q + 4)
          if (x >= xa && x < xb && y >= ya && y < yb) top = q
        }
        const word = words[(height - 1 - row) * width + column]
        if (top < 0) assert.equal(word, 0)
        else {
          const red = new Uint8Array(Uint32Array.of(word).buffer)[0]
          assert.ok(red === top + 1 || (red >= Math.floor((top + 1) * 0.66) && red < top + 1), `${red} for ${top + 1}`)
        }
      }
    }
  }
})

/** Paints by counting, and remembers what it was told to draw. */
class FakeStage extends TileStage {
  readonly quadsPerFrame = { still: 10, moving: 5 }
  readonly isSoftware = true
  ready = true
  drawn: readonly Part[] | null = null
  freed = 0

  constructor() {
    super(1e9)
  }
  setColours(): void {}
  draw(parts: readonly Part[]): void {
    this.drawn = parts
  }
  isReady(): boolean {
    return this.ready
  }
  prepareAll(): void {}
  protected make(width: number, height: number): Surface {
    return { width, height }
  }
  protected isCurrent(): boolean {
    return true
  }
  protected isAlive(): boolean {
    return true
  }
  protected paintQuads(): void {}
  protected free(): void {
    this.freed++
  }
}

test('a later stage takes over only when it is complete, and what was loaded is not asked for again', async () => {
  const grid = {
    x0: 0,
    y0: 0,
    width: 4096,
    height: 4096,
    xEnd: 4096,
    yEnd: 4096,
    maxLevel: 2,
    maxYLevel: 0,
    columns: 1024,
    rows: 1024,
  }
  const loads: string[] = []
  const id = (a: object): string => Object.values(a).join()
  const provider: TileProvider = {
    grid,
    id,
    cancel: () => {},
    load: (address): Promise<TileSource> => {
      loads.push(id(address))
      return Promise.resolve({ ...source([], [], 4096, 4096), quads: 25, columns: 1024, exact: true })
    },
  }
  const flat = new FakeStage()
  const later = new FakeStage()
  let first = 0
  const layer = new TileLayer(flat, (isFirst) => (first += isFirst ? 1 : 0))
  const window = { x0: 0, x1: 4096, y0: 0, y1: 4096 }
  const place = { x0: 0, x1: 1024, y0: 0, y1: 1024 }
  const draw = () => layer.draw(provider, window, place)
  assert.equal(draw().pending, 1)
  await Promise.resolve().then(() => {})
  assert.equal(first, 1, 'the first tile asks for its frame at once')
  assert.deepEqual([draw().pending, flat.drawn?.length], [0, 1], 'and is painted whole, whatever a frame may cost')

  let promoted = false
  layer.onPromoted = () => (promoted = true)
  later.ready = false
  layer.promote(later)
  for (let i = 0; i < 5; i++) assert.equal(layer.rise(), false)
  draw()
  later.ready = true
  assert.deepEqual([layer.rise(), layer.rise(), layer.rise()], [false, false, true])
  assert.deepEqual([promoted, later.drawn], [false, null])
  const frame = draw()
  assert.deepEqual([promoted, frame.pending, frame.tiles, later.drawn?.length, flat.freed], [true, 0, 1, 1, 1])
  assert.deepEqual(loads, ['0,0,0,0'])
  clearTimeout((layer as unknown as { restTimer: number }).restTimer)
})
