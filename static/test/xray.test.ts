import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ModuleMemory } from '../src/data/contracts'
import type { DeviceData } from '../src/data/model'
import { listed, ModuleRows, moduleTree, openAtFirst, peaksOfParts } from '../src/views/xray/module-tree'

const PATHS = [
  'net',
  'net.layers',
  'net.layers.0',
  'net.layers.0.up',
  'net.layers.1',
  'net.layers.1.up',
  'net.layers.2',
  'net.layers.2.up',
  'net.norm',
]
const MODULES = PATHS.map((module) => ({
  module,
  kind: 'Block',
  like: module === 'net.layers.1' ? 'net.layers.0' : null,
  peak_bytes: module.startsWith('net.layers') ? 10 : 1,
})) as ModuleMemory[]
/** An allocation each: module, category, size, and the positions that it lives from and to. */
const LIVES = [
  ['net.layers.0.up', 0, 10, 1, 9],
  ['net.layers.1.up', 1, 20, 2, 9],
  ['net.layers.2', 1, 40, 3, 4],
  ['net', 0, 80, 4, 6],
  ['', 0, 160, 1, 9],
] as const
const NAMES = ['', ...PATHS]
const DATA = {
  N: LIVES.length,
  module: LIVES.map(([module]) => NAMES.indexOf(module)),
  category: LIVES.map((life) => life[1]),
  size: LIVES.map((life) => life[2]),
  start: LIVES.map((life) => life[3]),
  end: LIVES.map((life) => life[4]),
  info: { modules: NAMES, categories: ['parameter', 'activation'] },
} as unknown as DeviceData

test('what is built alike is one row, and what stands below it', () => {
  const [net] = moduleTree(MODULES, true)
  const seen = listed([net], () => true).map(({ name, path, depth, members }) => [
    name,
    path,
    depth,
    members.map((row) => PATHS[row]),
  ])
  assert.deepEqual(seen, [
    ['net', 'net', 0, ['net']],
    ['layers', 'net.layers', 1, ['net.layers']],
    ['0–1', 'net.layers.*', 2, ['net.layers.0', 'net.layers.1']],
    ['up', 'net.layers.*.up', 3, ['net.layers.0.up', 'net.layers.1.up']],
    ['2', 'net.layers.2', 2, ['net.layers.2']],
    ['up', 'net.layers.2.up', 3, ['net.layers.2.up']],
    ['norm', 'net.norm', 1, ['net.norm']],
  ])
  const apart = listed(moduleTree(MODULES, false), () => true)
  assert.deepEqual(
    apart.map(({ path }) => path),
    PATHS,
  )
})

test('a module has the bytes of all below it, by category', () => {
  const rows = new ModuleRows(DATA, MODULES)
  for (let position = 0; position < 10; position++) {
    const live = rows.liveAt(position)
    PATHS.forEach((path, row) => {
      for (const category of [0, 1]) {
        const inside = LIVES.filter(
          ([module, kind, , start, end]) =>
            kind === category && `${module}.`.startsWith(`${path}.`) && start <= position && position < end,
        )
        assert.equal(
          live[2 * row + category],
          inside.reduce((sum, life) => sum + life[2], 0),
          `${path} at ${position}`,
        )
      }
    })
  }
})

test('a curve has the live bytes at each of its positions', () => {
  const rows = new ModuleRows(DATA, MODULES)
  const positions = [0, 2, 3, 5, 8]
  const curves = rows.curves(positions)
  positions.forEach((position, i) => {
    const live = rows.liveAt(position)
    for (const row of PATHS.keys()) assert.equal(curves[row * positions.length + i], live[2 * row] + live[2 * row + 1])
  })
})

test('parts of a trace are shown where most is allocated', () => {
  assert.deepEqual(peaksOfParts([0, 5, 1, 2, 2, 9], 3), [1, 3, 5])
  assert.deepEqual(peaksOfParts([4], 32), [0])
})

test('as many rows as fit are open at first, the largest before others', () => {
  const tops = moduleTree(MODULES, true)
  const paths = (room: number): string[] => [...openAtFirst(tops, room, MODULES)].map(({ path }) => path)
  assert.deepEqual(paths(2), [])
  assert.deepEqual(paths(3), ['net'])
  assert.deepEqual(paths(5), ['net', 'net.layers'])
  assert.deepEqual(paths(6), ['net', 'net.layers', 'net.layers.*'])
})
