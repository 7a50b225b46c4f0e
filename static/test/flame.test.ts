// The flame view's tree against brute force over random stacks: paths, sums, layout, folding, exports.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { DeviceData, Frame, StackTrie } from '../src/data/model'
import { foldedText, NO_STACK, speedscopeJson } from '../src/flame/export'
import { type Cell, cellAt, childrenOf, firstBranch, layoutFlame, weightOf } from '../src/flame/layout'
import { type PathOptions, Paths } from '../src/flame/paths'
import { FlameTree, type Node } from '../src/flame/tree'
import { weigh } from '../src/flame/weigh'
import { FrameColours, inkOn, originOf } from '../src/views/flame/colours'
import { mix } from '../src/views/shared/inks'
import { moved } from '../src/views/flame/cursor'
import { clip, wordsIn } from '../src/views/flame/painter'
import { random } from './trace'

interface Made {
  trie: StackTrie
  /** per stack: its frames, outermost first */
  stacks: Frame[][]
}

/** Stacks of a few functions with two lines each, so that both ways of merging and shared frames on both ends occur. */
function randomStacks(count: number, deep: number, r: () => number): Made {
  const pick = (below: number): number => Math.floor(r() * below)
  const frames: Frame[] = Array.from({ length: 24 }, (_, i) => ({
    name: `f${i >> 1}`,
    filename: `m${(i >> 1) % 3}.py`,
    line: 10 + (i % 2),
    noise: i % 11 === 0,
    python: true,
    library: false,
    operator: '',
    file: '',
  }))
  const frameOf: number[] = []
  const caller: number[] = []
  const leaf: number[] = [-1]
  const stacks: Frame[][] = [[]]
  while (stacks.length < count) {
    // Some go on from a node of another stack; a caller always comes first.
    let node = frameOf.length && r() < 0.8 ? pick(frameOf.length) : -1
    for (let steps = 1 + pick(deep); steps > 0; steps--) {
      frameOf.push(pick(frames.length))
      caller.push(node)
      node = frameOf.length - 1
    }
    leaf.push(node)
    const own: Frame[] = []
    for (let at = node; at >= 0; at = caller[at]) own.unshift(frames[frameOf[at]])
    stacks.push(own)
  }
  const names = [...new Set(frames.map((f) => f.name))]
  const filenames = [...new Set(frames.map((f) => f.filename))]
  return {
    stacks,
    trie: {
      frameOf: Int32Array.from(frameOf),
      caller: Int32Array.from(caller),
      leaf: Int32Array.from(leaf),
      frames: {
        names,
        filenames,
        name: Uint32Array.from(frames, (f) => names.indexOf(f.name)),
        file: Uint32Array.from(frames, (f) => filenames.indexOf(f.filename)),
        line: Int32Array.from(frames, (f) => f.line),
      },
      isNoise: (frame) => frames[frame].noise,
      isPython: (frame) => frames[frame].python,
      frame: (frame) => frames[frame],
    },
  }
}

function randomData(allocations: number, stacks: number, r: () => number): DeviceData {
  const pick = (below: number): number => Math.floor(r() * below)
  const n = 100
  const start = Int32Array.from({ length: allocations }, () => pick(n))
  return {
    N: allocations,
    n,
    P: n + 1,
    start,
    end: start.map((s) => s + 1 + pick(n - s)),
    size: Float64Array.from({ length: allocations }, () => pick(1e6)),
    stack: Uint32Array.from({ length: allocations }, () => pick(stacks)),
    clockUs: Float64Array.from({ length: n }, (_, i) => 10 * i),
  } as unknown as DeviceData
}

const label = (f: Frame, { merge }: PathOptions): string =>
  merge === 'line' ? `${f.name} (${f.filename}:${f.line})` : `${f.name} (${f.filename})`

/** The path of a stack by the book, root of the tree first. */
function pathOf(stack: Frame[], options: PathOptions): string[] {
  let shown = stack.filter((f) => options.noise || !f.noise)
  if (shown.length === 0) shown = stack.slice(-1)
  const path = shown.map((f) => label(f, options))
  return options.root === 'leaf' ? path.reverse() : path
}

function* cases(): Generator<{ made: Made; data: DeviceData; options: PathOptions; paths: Paths; r: () => number }> {
  for (let seed = 1; seed <= 12; seed++) {
    const r = random(seed)
    const made = randomStacks(seed < 3 ? 3 : 20 + 30 * seed, 12, r)
    const data = randomData(40 * seed, made.stacks.length, r)
    for (const root of ['root', 'leaf'] as const) {
      for (const merge of ['function', 'line'] as const) {
        const options: PathOptions = { root, merge, noise: seed % 2 === 0 }
        yield { made, data, options, paths: new Paths(made.trie, Int32Array.from(made.stacks.keys()), options), r }
      }
    }
  }
}

/** The path of a cell in words; null for cells that stand for no frame. */
function pathOfCell(tree: FlameTree, cell: Cell, made: Made): string[] {
  return Array.from({ length: cell.depth }, (_, depth) =>
    label(made.trie.frame(tree.paths.frameOfKey[tree.key(cell.low, depth)]), tree.paths.options),
  )
}

test('paths are sorted, whole, and say what neighbours share', () => {
  for (const { made, options, paths } of cases()) {
    let before: string[] = []
    const seen = new Set<number>()
    for (let row = 0; row < paths.rows; row++) {
      const path = Array.from({ length: paths.length(row) }, (_, depth) =>
        label(made.trie.frame(paths.frameOfKey[paths.key(row, depth)]), options),
      )
      assert.deepEqual(path, pathOf(made.stacks[paths.stack[row]], options))
      let common = 0
      while (common < Math.min(before.length, path.length) && before[common] === path[common]) common++
      if (row > 0) assert.equal(paths.common[row], common)
      assert.equal(paths.rowOf[paths.stack[row]], row)
      seen.add(paths.stack[row])
      before = path
    }
    assert.equal(seen.size, made.stacks.length)
  }
})

test('equal beginnings lie side by side: each path is a node once', () => {
  for (const { made, data, paths } of cases()) {
    const tree = new FlameTree(paths, weigh(data, made.stacks.length, 'allocated', 0, 0, null))
    const { cells } = layoutFlame(tree, tree.top, { chains: 'none', open: [], least: 0 })
    const all = cells.filter((cell) => cell.kind === 'frame').map((cell) => pathOfCell(tree, cell, made).join(';'))
    assert.equal(new Set(all).size, all.length)
  }
})

test('every node weighs what the allocations under it weigh, at any moment and of any measure', () => {
  for (const { made, data, options, paths, r } of cases()) {
    const position = Math.floor(r() * data.P)
    const since = Math.floor(r() * data.P)
    const mask = Uint8Array.from({ length: data.N }, () => (r() < 0.3 ? 1 : 0))
    const keysOf = made.stacks.map((stack) => {
      const path = pathOf(stack, options)
      return Array.from({ length: path.length + 1 }, (_, depth) => path.slice(0, depth).join(';'))
    })
    for (const measure of ['live', 'events', 'seconds', 'count', 'allocated', 'allocations', 'growth'] as const) {
      const tree = new FlameTree(paths, weigh(data, made.stacks.length, measure, position, since, mask))
      const expected = new Map<string, { value: number; count: number; matched: number }>()
      const gains = new Map<number, number>()
      const live = (id: number, at: number): boolean => data.start[id] <= at && at < data.end[id]
      for (let id = 0; id < data.N; id++) {
        const { size, start, end, stack } = data
        const events = end[id] - 1 - Math.max(0, start[id] - 1)
        const times =
          measure === 'growth'
            ? +live(id, position) - +live(id, since)
            : measure.startsWith('alloc')
              ? +(start[id] > 0)
              : +live(id, position)
        // The clock stops with the last event; one event takes 10 µs.
        const span = Math.min(events, data.n - 1 - Math.max(0, start[id] - 1)) * 10e-6
        const each = {
          live: size[id],
          events: size[id] * events,
          seconds: size[id] * span,
          count: 1,
          allocated: size[id],
          allocations: 1,
          growth: size[id],
        }
        if (times === 0) continue
        const amount = times * each[measure]
        gains.set(stack[id], (gains.get(stack[id]) ?? 0) + amount)
        for (const key of keysOf[stack[id]]) {
          const node = expected.get(key) ?? { value: 0, count: 0, matched: 0 }
          expected.set(key, {
            value: node.value + amount,
            count: node.count + times,
            matched: node.matched + (mask[id] ? amount : 0),
          })
        }
      }
      const { cells } = layoutFlame(tree, tree.top, { chains: 'none', open: [], least: 0 })
      const close = (a: number, b: number): void =>
        assert.ok(Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b)), `${measure}: ${a}, not ${b}`)
      for (const cell of cells) {
        if (cell.kind !== 'frame' && cell.kind !== 'all') continue
        const node = expected.get(pathOfCell(tree, cell, made).join(';')) ?? { value: 0, count: 0, matched: 0 }
        close(cell.value - cell.loss, node.value)
        assert.equal(cell.count, node.count)
        if (measure !== 'growth') close(cell.matched, node.matched)
      }
      if (measure === 'growth') {
        const changes = [...gains.values()]
        assert.equal(
          cells[0].value,
          changes.filter((c) => c > 0).reduce((a, b) => a + b, 0),
        )
        assert.equal(
          cells[0].loss,
          changes.filter((c) => c < 0).reduce((a, b) => a - b, 0),
        )
      }
      const frames = [...expected].filter(([key, { value, count }]) => key !== '' && (value !== 0 || count !== 0))
      assert.ok(cells.filter((cell) => cell.kind === 'frame').length >= frames.length)
    }
  }
})

test('a layout loses nothing, whatever is folded, focused or narrow', () => {
  for (const { made, data, paths, r } of cases()) {
    const tree = new FlameTree(paths, weigh(data, made.stacks.length, 'growth', 80, 20, null))
    for (const chains of ['none', 'outer', 'all'] as const) {
      for (const least of [0, 1e4, 1e6, Infinity]) {
        const stack = Math.floor(r() * made.stacks.length)
        const length = paths.length(paths.rowOf[stack])
        const node = r() < 0.5 || length === 0 ? tree.top : tree.nodeOf(stack, 1 + Math.floor(r() * length))!
        const layout = layoutFlame(tree, node, { chains, open: [], least })
        const { cells, rows } = layout
        assert.equal(rows[rows.length - 1], cells.length)
        for (let at = 0; at < cells.length; at++) {
          const [first, end] = childrenOf(layout, at)
          if (first === end) continue
          let { from } = cells[at]
          for (const child of cells.slice(first, end)) {
            assert.equal(child.from, from)
            assert.equal(child.parent, at)
            from += weightOf(child)
          }
          assert.equal(from, cells[at].from + weightOf(cells[at]))
          for (const key of ['value', 'loss', 'count'] as const) {
            assert.equal(
              cells.slice(first, end).reduce((sum, cell) => sum + cell[key], 0),
              cells[at][key],
            )
          }
          const middle = cells[at].from + weightOf(cells[at]) / 2
          if (weightOf(cells[at]) > 0) assert.equal(cellAt(layout, cells[at].row, middle), at)
        }
        assert.ok(cells.slice(1).every((cell) => cell.kind !== 'frame' || weightOf(cell) >= least))
      }
    }
  }
})

const pythonFrame = (name: string): Frame => ({
  name,
  filename: 'm.py',
  line: 1,
  noise: false,
  python: true,
  library: false,
  operator: '',
  file: '',
})

test('chains fold into one cell, and open one by one', () => {
  const frames = (names: string): Frame[] => Array.from(names, pythonFrame)
  const stacks = ['abcdef', 'abcdeg', 'abx'].map(frames)
  const trie = trieOf(stacks)
  const paths = new Paths(trie, Int32Array.of(0, 1, 2), { root: 'root', merge: 'function', noise: false })
  const data = {
    ...randomData(0, 1, random(1)),
    N: 3,
    start: Int32Array.of(1, 1, 1),
    end: Int32Array.of(9, 9, 9),
    size: Float64Array.of(5, 3, 2),
    stack: Uint32Array.of(0, 1, 2),
  }
  const tree = new FlameTree(paths, weigh(data, 3, 'live', 4, 0, null))
  const words = (open: { low: number; high: number; depth: number }[], chains: 'none' | 'outer' | 'all'): string =>
    layoutFlame(tree, tree.top, { chains, open, least: 0 })
      .cells.map((c) => `${c.kind[0]}${c.frames > 1 ? c.frames : ''}${c.depth}:${c.value}`)
      .join(' ')
  assert.equal(words([], 'none'), 'a0:10 f1:10 f2:10 f3:8 f3:2 f4:8 f5:8 f6:5 f6:3')
  assert.equal(words([], 'outer'), 'a0:10 f1:10 f2:10 f3:8 f3:2 f4:8 f5:8 f6:5 f6:3', 'one frame is no chain')
  assert.equal(words([], 'all'), 'a0:10 f1:10 f2:10 c24:8 f3:2 f5:8 f6:5 f6:3')
  const chain = tree.nodeOf(0, 4)!
  assert.equal(words([chain], 'all'), words([], 'none'))
})

test('a chain folds past branches of less than 2%, which stay in sight as one cell', () => {
  const frames = (names: string): Frame[] => Array.from(names, pythonFrame)
  const stacks = ['abcdef', 'abcdeg', 'abx', 'abcy', 'abc'].map(frames)
  const paths = new Paths(trieOf(stacks), Int32Array.of(0, 1, 2, 3, 4), {
    root: 'root',
    merge: 'function',
    noise: false,
  })
  const treeOf = (sizes: number[]): FlameTree => {
    const data = {
      ...randomData(0, 1, random(1)),
      N: 5,
      start: Int32Array.of(1, 1, 1, 1, 1),
      end: Int32Array.of(9, 9, 9, 9, 9),
      size: Float64Array.from(sizes),
      stack: Uint32Array.of(0, 1, 2, 3, 4),
    }
    return new FlameTree(paths, weigh(data, 5, 'live', 4, 0, null))
  }
  const words = (tree: FlameTree, open: Node[] = []): string =>
    layoutFlame(tree, tree.top, { chains: 'outer', open, least: 0 })
      .cells.map((c) => `${c.kind[0]}${c.frames > 1 ? c.frames : ''}${c.depth}:${c.value}`)
      .join(' ')
  const tree = treeOf([600, 385, 5, 4, 6])
  assert.equal(words(tree), 'a0:1000 c44:1000 f5:985 m34:15 f6:600 f6:385', 'x, y and the end at c are 15 of 1,000')
  const opened = [tree.nodeOf(0, 4)!]
  assert.match(words(tree, opened), /^a0:1000 f1:1000 f2:1000 f3:995 f3:5 /)
  const wider = treeOf([600, 350, 30, 20, 0])
  assert.equal(words(wider), 'a0:1000 f1:1000 f2:1000 f3:970 f3:30 f4:950 f4:20 o3:0 f5:950 f6:600 f6:350')
})

test('C++ frames in a row fold into one cell until it is opened, and the program stays', () => {
  const frames = (names: string): Frame[] =>
    Array.from(names, (name) => {
      const python = name < 'n'
      return {
        name,
        filename: python ? 'm.py' : '',
        line: 1,
        noise: false,
        python,
        library: false,
        operator: '',
        file: '',
      }
    })
  const stacks = ['abxyz', 'abxyw', 'acnop'].map(frames)
  const paths = (root: 'root' | 'leaf'): Paths =>
    new Paths(trieOf(stacks), Int32Array.of(0, 1, 2), { root, merge: 'function', noise: false })
  const data = {
    ...randomData(0, 1, random(1)),
    N: 3,
    start: Int32Array.of(1, 1, 1),
    end: Int32Array.of(9, 9, 9),
    size: Float64Array.of(5, 3, 2),
    stack: Uint32Array.of(0, 1, 2),
  }
  const weights = weigh(data, 3, 'live', 4, 0, null)
  const words = (tree: FlameTree, chains: 'none' | 'outer' | 'all', open: Node[] = []): string =>
    layoutFlame(tree, tree.top, { chains, open, least: 0 })
      .cells.map((c) => `${c.kind[0]}${c.frames > 1 ? c.frames : ''}${c.depth}:${c.value}`)
      .join(' ')
  const tree = new FlameTree(paths('root'), weights)
  assert.equal(words(tree, 'none'), 'a0:10 f1:10 f2:8 f2:2 f3:8 f3:2 f4:8 f4:2 f5:5 f5:3 f5:2')
  // x and y lead to z and to w, which are one frame each; n, o and p end the program's own path.
  assert.equal(words(tree, 'outer'), 'a0:10 f1:10 f2:8 f2:2 n24:8 n35:2 f5:5 f5:3')
  assert.equal(words(tree, 'outer', [tree.nodeOf(2, 5)!]), 'a0:10 f1:10 f2:8 f2:2 n24:8 f3:2 f5:5 f5:3 f4:2 f5:2')
  const inner = new FlameTree(paths('leaf'), weights)
  assert.match(words(inner, 'all'), /n33:2/)
})

test('a cell says its line where all stacks run through one', () => {
  const at = (line: number): Frame => ({
    name: 'a',
    filename: 'm.py',
    line,
    noise: false,
    python: true,
    library: false,
    operator: '',
    file: '',
  })
  const stacks = [
    [at(4), at(9)],
    [at(4), at(8)],
  ]
  const trie = trieOf(stacks)
  trie.frames.line.set([4, 9, 4, 8])
  const paths = new Paths(trie, Int32Array.of(0, 1), { root: 'root', merge: 'function', noise: false })
  const data = {
    ...randomData(0, 1, random(1)),
    N: 2,
    start: Int32Array.of(1, 1),
    end: Int32Array.of(9, 9),
    size: Float64Array.of(5, 3),
    stack: Uint32Array.of(0, 1),
  }
  const tree = new FlameTree(paths, weigh(data, 2, 'live', 4, 0, null))
  assert.equal(tree.line({ low: 0, high: 2, depth: 1 }), 4)
  assert.equal(tree.line({ low: 0, high: 2, depth: 2 }), 0)
  assert.equal(tree.line({ low: 0, high: 1, depth: 2 }), 9)
})

test('a cell names its place where there is room, by line before the name', () => {
  const ctx = { measureText: (text: string) => ({ width: 7 * text.length }) as TextMetrics }
  const words = (letters: number, isPlaceFirst: boolean): string | undefined =>
    wordsIn(ctx, { name: 'forward', place: 'models/gpt.py:12', isPlaceFirst }, 7 * letters, 7)?.text
  assert.equal(words(25, false), 'forward  models/gpt.py:12')
  assert.equal(words(24, false), 'forward  gpt.py:12')
  assert.equal(words(17, false), 'forward')
  assert.equal(words(17, true), 'forwa…  gpt.py:12')
  assert.equal(words(11, true), 'gpt.py:12')
  assert.equal(words(8, true), 'forw…:12')
  assert.equal(words(4, true), 'for…')
  assert.equal(words(2, true), undefined)
})

test('folded text and speedscope hold each path once, outermost first', () => {
  for (const { made, data, options, paths } of cases()) {
    const tree = new FlameTree(paths, weigh(data, made.stacks.length, 'live', 50, 0, null))
    const names = { lines: options.merge === 'line', frameOf: (key: number) => made.trie.frame(paths.frameOfKey[key]) }
    const expected = new Map<string, number>()
    for (let id = 0; id < data.N; id++) {
      if (data.start[id] > 50 || data.end[id] <= 50) continue
      const path = pathOf(made.stacks[data.stack[id]], { ...options, root: 'root' }).join(';') || NO_STACK
      expected.set(path, (expected.get(path) ?? 0) + data.size[id])
    }
    const lines = foldedText(tree, tree.top, names).split('\n').slice(0, -1)
    assert.deepEqual(
      lines,
      [...expected]
        .filter(([, size]) => size > 0)
        .map(([path, size]) => `${path} ${size}`)
        .sort(),
    )
    const { profiles, shared } = JSON.parse(speedscopeJson(tree, tree.top, names, 'x'))
    assert.equal(profiles[0].endValue, tree.sum(0, tree.rows).value)
    assert.ok(profiles[0].samples.flat().every((i: number) => i < shared.frames.length))
  }
})

test('a frame keeps its place in a link when the tree is turned around or noise is shown', () => {
  for (const { made, paths } of cases()) {
    for (let stack = 1; stack < made.stacks.length; stack++) {
      const length = paths.length(paths.rowOf[stack])
      for (let depth = 1; depth <= length; depth++) {
        const recorded = paths.recordedAt(stack, depth)
        assert.equal(paths.depthAt(stack, recorded), depth)
        const own = made.stacks[stack]
        const key = paths.key(paths.rowOf[stack], depth - 1)
        assert.equal(own[own.length - 1 - recorded].name, made.trie.frame(paths.frameOfKey[key]).name)
      }
    }
  }
})

test('arrows stay in the picture and go where they point', () => {
  for (const { made, data, paths, r } of cases()) {
    const tree = new FlameTree(paths, weigh(data, made.stacks.length, 'live', 50, 0, null))
    const layout = layoutFlame(tree, tree.top, { chains: 'outer', open: [], least: 1e4 })
    let at = 0
    for (let step = 0; step < 200; step++) {
      const key = ['ArrowDown', 'ArrowUp', 'ArrowLeft', 'ArrowRight'][Math.floor(r() * 4)]
      const next = moved(layout, at, key)!
      const { cells } = layout
      if (key === 'ArrowDown' && next !== at) assert.equal(cells[next].parent, at)
      if (key === 'ArrowUp' && next !== at) assert.equal(cells[at].parent, next)
      if (key === 'ArrowLeft' || key === 'ArrowRight') assert.equal(cells[next].row, cells[at].row)
      at = next
    }
    assert.equal(moved(layout, at, 'x'), null)
  }
})

test('text is cut to its room, and read on every colour', () => {
  const ctx = {
    measureText: (text: string) =>
      ({ width: Array.from(text).reduce((sum, c) => sum + (c > '\u00ff' && c !== '…' ? 12 : 7), 0) }) as TextMetrics,
  }
  assert.equal(clip(ctx, 'forward', 49, 7), 'forward')
  assert.equal(clip(ctx, 'forward', 48, 7), 'forwa…')
  assert.equal(clip(ctx, '漢字漢字', 40, 7), '漢字…')
  assert.equal(clip(ctx, 'forward', 12, 7), '')
  const light = (text: string): number => {
    const [r, g, b] = text
      .match(/\d+/g)!
      .map((byte) =>
        Number(byte) / 255 <= 0.04045 ? Number(byte) / 255 / 12.92 : ((Number(byte) / 255 + 0.055) / 1.055) ** 2.4,
      )
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  for (const dark of [false, true]) {
    const colours = new FrameColours(dark)
    const grounds = Array.from({ length: 300 }, (_, i) => colours.of(`package ${i}`))
    for (let i = -10; i <= 10; i++) grounds.push(colours.change(10 + i, 10 - i))
    for (const ground of [...grounds, colours.plain, mix(colours.plain, [0, 0, 0], 0.5)]) {
      const [a, b] = [light(inkOn(ground)), light(`rgb(${ground.join(' ')})`)].sort((x, y) => y - x)
      assert.ok((a + 0.05) / (b + 0.05) >= 4.5, `${ground}`)
    }
  }
  const origin = (filename: string, name = 'f'): string =>
    originOf({ filename, name, line: 1, noise: false, python: true, library: false, operator: '', file: '' })
  assert.equal(origin('/x/lib/python3.11/site-packages/torch/nn/functional.py'), 'torch')
  assert.equal(origin('/usr/lib/python3.11/runpy.py'), 'python')
  assert.equal(origin('/home/me/train.py'), '/home/me/train.py')
  assert.equal(origin('??', 'at::Tensor at::native::clone(int)'), 'at')
  assert.equal(origin('??', 'main'), 'native')
})

function trieOf(stacks: Frame[][]): StackTrie {
  const frameOf: number[] = []
  const caller: number[] = []
  const frames: Frame[] = []
  const leaf = stacks.map((stack) =>
    stack.reduce((above, frame) => {
      frames.push(frame)
      frameOf.push(frames.length - 1)
      caller.push(above)
      return frameOf.length - 1
    }, -1),
  )
  const names = [...new Set(frames.map((f) => f.name))]
  return {
    frameOf: Int32Array.from(frameOf),
    caller: Int32Array.from(caller),
    leaf: Int32Array.from(leaf),
    frames: {
      names,
      filenames: ['m.py'],
      name: Uint32Array.from(frames, (f) => names.indexOf(f.name)),
      file: new Uint32Array(frames.length),
      line: new Int32Array(frames.length).fill(1),
    },
    isNoise: () => false,
    isPython: (frame) => frames[frame].python,
    frame: (frame) => frames[frame],
  }
}

test('callers and callees of a function: every stack with it once, from its outermost call on', () => {
  for (const { made, options, r } of cases()) {
    const middle = made.trie.frameOf[Math.floor(r() * made.trie.frameOf.length)]
    const name = label(made.trie.frame(middle), options)
    const paths = new Paths(made.trie, Int32Array.from(made.stacks.keys()), { ...options, middle })
    const expected = new Map<number, string[]>()
    made.stacks.forEach((stack, i) => {
      const path = pathOf(stack, options)
      const at = options.root === 'leaf' ? path.lastIndexOf(name) : path.indexOf(name)
      if (at >= 0) expected.set(i, path.slice(at))
    })
    assert.deepEqual([...paths.stack].sort(), [...expected.keys()].sort())
    for (let row = 0; row < paths.rows; row++) {
      const stack = paths.stack[row]
      const path = Array.from({ length: paths.length(row) }, (_, depth) =>
        label(made.trie.frame(paths.frameOfKey[paths.key(row, depth)]), options),
      )
      assert.deepEqual(path, expected.get(stack))
      for (let depth = 1; depth <= path.length; depth++) {
        const recorded = paths.recordedAt(stack, depth)
        assert.equal(label(made.stacks[stack].at(-1 - recorded)!, options), path[depth - 1])
        assert.equal(paths.depthAt(stack, recorded), depth)
      }
    }
  }
})

test('the first row that branches is the first with two cells worth seeing', () => {
  const stacks = ['abcd', 'abce', 'x'].map((names) => Array.from(names, pythonFrame))
  const paths = new Paths(trieOf(stacks), Int32Array.of(0, 1, 2), { root: 'root', merge: 'function', noise: false })
  const branchOf = (sizes: number[]): number => {
    const data = {
      ...randomData(0, 1, random(1)),
      N: 3,
      start: Int32Array.of(1, 1, 1),
      end: Int32Array.of(9, 9, 9),
      size: Float64Array.from(sizes),
      stack: Uint32Array.of(0, 1, 2),
    }
    const tree = new FlameTree(paths, weigh(data, 3, 'live', 4, 0, null))
    return firstBranch(layoutFlame(tree, tree.top, { chains: 'none', open: [], least: 0 }))
  }
  assert.equal(branchOf([500, 499, 1]), 4)
  assert.equal(branchOf([500, 300, 200]), 1)
  assert.equal(branchOf([999, 0, 1]), 0)
})
