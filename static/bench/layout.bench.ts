// Tile layout, picking and decoding on a generated trace. `node bench/layout.mjs [events] [training|random]`
import { DecodedBlob } from '../src/data/columns'
import { lifetimes, allocatedCurve } from '../src/data/device'
import type { TileKey } from '../src/data/model'
import { gridOf, tileCount } from '../src/layout/grid'
import { offsetOf, path, pick } from '../src/layout/pick'
import { eventSamples } from '../src/layout/sampling'
import { layOutTile } from '../src/layout/tile'
import { encodeBlob } from '../test/encode'
import { random, randomDevice, trainingDevice } from '../test/trace'

const events = Number(process.argv[2] ?? 3_000_000)
const shape = {
  events,
  older: 500,
  stacks: 3000,
  alloc: 0.5,
  size: (r: () => number) => Math.ceil(r() ** 12 * 2e8),
  times: true,
}
const d = process.argv[3] === 'random' ? randomDevice(shape, 1) : trainingDevice(events, 400, 1)
console.log(`${d.N} allocations, ${d.n} events`)

const timed = <T>(run: () => T): [T, number] => {
  const t = performance.now()
  const value = run()
  return [value, performance.now() - t]
}

const source = { ...d.info, ...d }
for (const axis of ['event', 'time'] as const) {
  const grid = gridOf(d, axis)
  for (const level of [0, 1, 2, 4, 8, grid.depth]) {
    const tile = Math.floor(tileCount(grid, level) * 0.6)
    for (const yLevel of [0, 2]) {
      const key: TileKey = { device: 0, axis, level, tile, yLevel, yTile: yLevel }
      const [mesh, first] = timed(() => layOutTile(source, key))
      const times = [1, 2, 3].map(() => timed(() => layOutTile(source, key))[1])
      console.log(
        axis,
        'level',
        level,
        'y',
        yLevel,
        'quads',
        mesh.quads,
        first.toFixed(1),
        Math.min(...times).toFixed(1),
        'ms',
      )
    }
  }
}
const r = random(3)
const picks = Array.from({ length: 50 }, () => timed(() => pick(d, Math.floor(r() * d.P), r() * d.info.peak_bytes))[1])
const offsets = Array.from({ length: 50 }, () => timed(() => offsetOf(d, d.N - 10, d.P - 1))[1])
const samples = eventSamples(d.allocated, gridOf(d, 'event'), 0, 0).s
const paths = Array.from({ length: 10 }, () => timed(() => path(d, Math.floor(d.N / 2), samples))[1])
console.log(
  'pick',
  Math.max(...picks).toFixed(1),
  'offsetOf',
  Math.max(...offsets).toFixed(1),
  'path',
  Math.max(...paths).toFixed(1),
  'ms at most',
)

const N = Math.min(d.N, 300_000)
const bytes = encodeBlob([
  { name: 'alloc', dtype: 'i32', values: d.allocEvent.subarray(d.info.ghosts, N), transform: 'Dz' },
  {
    name: 'lifetime',
    dtype: 'u32',
    values: d.freeEvent.subarray(0, N).map((e, i) => (e < 0 ? 0 : e - d.allocEvent[i])),
  },
  { name: 'requested', dtype: 'i32', values: new Int32Array(N).map((_, i) => (i % 3) - 1) },
  { name: 'size', dtype: 'f64', values: d.size.subarray(0, N), layout: 'u' },
  { name: 'lo', dtype: 'u32', values: d.addrLo.subarray(0, N), layout: 'u' },
  { name: 'hi', dtype: 'u32', values: new Uint32Array(N).fill(3), layout: 'c' },
  { name: 'stack', dtype: 'u32', values: d.stack.subarray(0, N), layout: 'p' },
  { name: 'free', dtype: 'u32', values: d.stack.subarray(0, N), transform: 'dz' },
])
for (let i = 0; i < 3; i++) {
  const [, ms] = timed(() => {
    const blob = new DecodedBlob(bytes)
    const l = lifetimes({ ...d.info, allocations: N }, blob.i32('alloc'), blob.u32('lifetime'), blob.i32('requested'))
    allocatedCurve(l.start, l.end, blob.f64('size'), d.P)
    for (const name of ['lo', 'hi', 'stack', 'free']) blob.u32(name)
  })
  console.log(`decode ${N} allocations, ${(bytes.length / 1e6).toFixed(1)} MB: ${ms.toFixed(0)} ms`)
}
