import assert from 'node:assert/strict'
import { test } from 'node:test'
import { commonStart, without } from '../src/data/common-start'
import type { DeviceData, Frame, Stacks } from '../src/data/model'
import { csvLine, fileName } from '../src/ui/download'
import { ScrollMap } from '../src/ui/scroll-map'
import { allocationOf, ALLOC, indexEvents, listed, OTHER, REQUEST, UNKNOWN } from '../src/views/events/event-index'
import { readPlace } from '../src/views/events/events-tools'
import { callersOf, withCallers } from '../src/views/shared/callers'
import { quoted } from '../src/search/grammar'
import type { Groups } from '../src/views/table/grouping'
import { countEmpty, inOrder, keysOf, keysOfWords, NONE, ranksOf } from '../src/views/table/order'
import { type Row, withWeight } from '../src/views/diff/compare'
import { rangeOf, readEventRange, sumsInRange, writeEventRange } from '../src/views/shared/range-sums'
import { RowPlan } from '../src/views/table/row-plan'
import { mainCategories } from '../src/views/table/sums'
import { info, random, randomDevice } from './trace'

test('sorting is that of numbers, keeps ties in order, and puts missing values last either way', () => {
  const r = random(7)
  for (let round = 0; round < 60; round++) {
    const n = Math.floor(r() ** 2 * 3000)
    const kinds = [
      () => Math.floor(r() * 5),
      () => (r() - 0.5) * 1e18,
      () => (r() < 0.2 ? NaN : r() * 100),
      () => -Math.floor(r() * 3),
      () => [0, -0, Infinity, -Infinity, 2 ** 53][Math.floor(r() * 5)],
      () => Math.floor(r() * 2 ** 32) * 2 ** 20,
      () => round,
      () => [0xfffffffe, 0xffffffff, 2 ** 32, 2 ** 31, NaN][Math.floor(r() * 5)],
      () => 0xfffffffe - Math.floor(r() * 2 ** 31),
    ]
    const make = kinds[round % kinds.length]
    const values = Float64Array.from({ length: n }, make)
    const rows = Int32Array.from({ length: n }, (_, i) => 3 * i)
    for (const descending of [false, true]) {
      const expected = Array.from(rows.keys()).sort((a, b) => {
        const [x, y] = [values[a], values[b]]
        if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y)) || a - b
        return x === y ? a - b : (x < y ? -1 : 1) * (descending ? -1 : 1)
      })
      assert.deepEqual(
        Array.from(inOrder(rows, keysOf(values), descending)),
        expected.map((i) => 3 * i),
      )
    }
  }
  assert.deepEqual([...ranksOf(['b', 'a', '', 'b'])], [2, 1, 0, 2])
})

test('addresses sort by all their 64 bits', () => {
  const hi = Uint32Array.from([0x7f12, 0xffffffff, 0x7f12, 0])
  const lo = Uint32Array.from([0x80000001, 0xfffff000, 0x80000000, 512])
  assert.deepEqual([...inOrder(Int32Array.from([0, 1, 2, 3]), { hi, lo }, false)], [3, 2, 0, 1])
  assert.deepEqual([...inOrder(Int32Array.from([0, 1, 2, 3]), { hi, lo }, true)], [1, 0, 2, 3])
  const r = random(11)
  for (let round = 0; round < 40; round++) {
    // Aligned to 2 to the power of `low`, and with `high` bits that differ; one in ten is missing.
    const [low, high] = [Math.floor(r() * 32), Math.floor(r() * 20)]
    const base = round % 2 ? 0xfff00000 : 0x7f000000
    const words = Array.from({ length: 300 }, (): [number, number] =>
      r() < 0.1
        ? [NONE, NONE]
        : [(base | Math.floor(r() * 2 ** high)) >>> 0, (Math.floor(r() * 2 ** (32 - low)) + 1) * 2 ** low - 1],
    )
    const keys = keysOfWords(
      Uint32Array.from(words, ([high]) => high),
      Uint32Array.from(words, ([, low]) => low),
    )
    if (high < low) assert.equal(keys.hi, null, 'one word')
    const value = ([high, low]: [number, number]): bigint => (BigInt(high) << 32n) | BigInt(low)
    const none = value([NONE, NONE])
    for (const descending of [false, true]) {
      const expected = words
        .map((pair, i) => ({ i, key: value(pair) }))
        .sort((a, b) => {
          if (a.key === none || b.key === none) return Number(a.key === none) - Number(b.key === none) || a.i - b.i
          return a.key === b.key ? a.i - b.i : (a.key < b.key ? -1 : 1) * (descending ? -1 : 1)
        })
        .map(({ i }) => i)
      assert.deepEqual([...inOrder(Int32Array.from(words.keys()), keys, descending)], expected)
    }
  }
})

test('every row can be reached with a bar that is shorter than the rows', () => {
  const view = 700
  for (const rows of [1, 20, 300_000, 1_000_000, 30_000_000]) {
    const full = rows * 26
    const map = new ScrollMap()
    map.resize(full, view)
    assert.ok(map.height <= 8_000_000)
    const last = Math.max(0, full - view)
    map.moveTo(Infinity)
    assert.equal(map.top, last)
    assert.ok(Math.abs(map.place - Math.max(0, map.height - view)) < 1e-6)
    // Wheel steps move the rows by as much as the bar, and the bar can always be put so that there is way left.
    map.moveTo(last / 2)
    let bar = map.place
    for (let i = 0; i < 2000; i++) {
      const before = map.top
      bar = Math.min(bar + 120, Math.max(0, map.height - view))
      map.scrolled(bar)
      assert.ok(Math.abs(map.top - Math.min(last, before + 120)) < 1e-6 || map.isStuck || map.top === last)
      if (map.isStuck || map.isOff) {
        map.moveTo(map.top)
        bar = map.place
      }
    }
    assert.equal(map.isStuck, false)
    // The thumb goes anywhere.
    map.scrolled(0)
    assert.equal(map.top, 0)
  }
})

test('opened rows push the others down', () => {
  const plan = new RowPlan(Int32Array.from([5, 2, 9]), [
    { row: 9, ids: [1, 2], more: 0 },
    { row: 5, ids: [7], more: 4 },
    { row: 77, ids: [3], more: 0 },
  ])
  assert.equal(plan.count, 7)
  assert.deepEqual(
    Array.from({ length: 7 }, (_, i) => plan.at(i)),
    [
      { kind: 'row', row: 5 },
      { kind: 'child', row: 5, id: 7 },
      { kind: 'more', row: 5, count: 4 },
      { kind: 'row', row: 2 },
      { kind: 'row', row: 9 },
      { kind: 'child', row: 9, id: 1 },
      { kind: 'child', row: 9, id: 2 },
    ],
  )
  assert.deepEqual(
    [5, 2, 9, 1].map((row) => plan.lineOf(row)),
    [0, 3, 4, -1],
  )
  assert.equal(plan.isOpen(5), true)
  assert.equal(plan.isOpen(2), false)
})

test('rows at the end fold into one line, with what is opened under them', () => {
  const opened = [
    { row: 5, ids: [7], more: 0 },
    { row: 9, ids: [1], more: 0 },
  ]
  const plan = new RowPlan(Int32Array.from([5, 2, 9]), opened, 2)
  assert.deepEqual(
    Array.from({ length: plan.count }, (_, i) => plan.at(i).kind),
    ['row', 'child', 'folded'],
  )
  assert.deepEqual(plan.at(2), { kind: 'folded', row: 2, count: 2 })
  assert.deepEqual(
    [5, 2, 9].map((row) => plan.lineOf(row)),
    [0, -1, -1],
  )
  assert.equal(countEmpty(keysOf(Float64Array.of(3, 0, -0, NaN, -1))), 3)
  assert.equal(countEmpty(keysOf(Float64Array.of(3, 0, 2 ** 40, NaN, 0))), 3, 'whole numbers')
})

test('CSV fields are quoted where they must be', () => {
  assert.equal(
    csvLine(['a', 'b,c', 'say "x"', 'two\nlines', null, 0, 1.5, ' edge ', '']),
    'a,"b,c","say ""x""","two\nlines",,0,1.5," edge ",\r\n',
  )
  assert.equal(fileName('Run 7.pickle', 'cuda:0', '<b>'), 'run-7-pickle-cuda-0-b')
  assert.equal(fileName('…'), 'snapshot')
})

test('names become terms of a query', () => {
  assert.deepEqual(['forward', 'a b', 'say "x"', '', 'x.py:1'].map(quoted), [
    'forward',
    '"a b"',
    '"say ""x"""',
    '""',
    '"x.py:1"',
  ])
})

test('events are put back in their order, each once', () => {
  const d = randomDevice({ events: 4000, older: 30, stacks: 5, alloc: 0.5, size: (r) => Math.floor(r() * 1e6) }, 3)
  const index = indexEvents(d.info, d)
  const seen = new Map<number, string>()
  for (let id = 0; id < d.N; id++) {
    if (d.freeEvent[id] >= 0) seen.set(d.freeEvent[id], `free_requested ${id}`)
    if (d.allocEvent[id] >= 0) seen.set(d.allocEvent[id], `alloc ${id}`)
  }
  for (let e = 0; e < d.n; e++) {
    const id = allocationOf(index, e)
    assert.equal(`${index.names[index.action[e]]} ${id}`, seen.get(e) ?? 'free_requested -1')
  }
  assert.equal(
    index.counts.reduce((a, b) => a + b),
    d.n,
  )
})

test('an alloc that ends an older lifetime is the row; duplicate requests and others keep their names', () => {
  const i32 = (...values: number[]) => Int32Array.from(values)
  const other = { event: i32(3, 4), action: Uint8Array.from([0, 1]) }
  const base = {
    n: 5,
    P: 6,
    N: 2,
    start: i32(1, 3),
    end: i32(3, 6),
    freeRequestedEvent: i32(1, -1),
    other,
  } as unknown as Parameters<typeof indexEvents>[1]
  const index = indexEvents(info({ events: 5, actions: ['free_requested', 'weird'] }), base)
  assert.deepEqual([...index.kind], [ALLOC, REQUEST, ALLOC, OTHER, OTHER])
  assert.deepEqual([...index.ref], [0, 0, 1, 0, 1])
  assert.deepEqual(
    Array.from(index.action, (a) => index.names[a]),
    ['alloc', 'free_requested', 'alloc', 'free_requested', 'weird'],
  )
  assert.deepEqual([...index.replaced], [[2, 0]])
  assert.deepEqual([...listed(index, new Set(['alloc']), null)!], [1, 3, 4])
  assert.deepEqual([...listed(index, new Set(), Uint8Array.from([0, 1]))!], [2])
  assert.equal(listed(index, new Set(), null), null)
})

test('without the requests, events that nothing is left of are requests', () => {
  const i32 = (...values: number[]) => Int32Array.from(values)
  const other = { event: i32(), action: new Uint8Array(0) }
  const base = {
    n: 3,
    P: 4,
    N: 1,
    start: i32(1),
    end: i32(3),
    freeRequestedEvent: i32(-1),
    other,
  } as unknown as Parameters<typeof indexEvents>[1]
  const index = indexEvents(info({ events: 3, left_out: ['requested'] }), base)
  assert.equal(index.kind[1], UNKNOWN)
  assert.deepEqual(
    Array.from(index.action, (a) => index.names[a]),
    ['alloc', 'free_requested', 'free_completed'],
  )
})

test('places that readers type', () => {
  const data = { n: 5, clockUs: Float64Array.from([0, 10, 1000, 1_500_000, 2_000_000]) }
  assert.deepEqual(
    ['3', '#1', '1,000', '-4', '10us', '+1.5 s', '11 µs', '1 ms', '9 h'].map((text) => readPlace(text, data)),
    [3, 1, 4, 0, 1, 3, 1, 2, 4],
  )
  for (const text of ['', 'x', '1.5', 's', '1 parsec']) assert.equal(typeof readPlace(text, data), 'string')
  assert.equal(readPlace('1 s', { n: 5, clockUs: null }), 'this report holds no times')
})

test('a range sums what its events allocate and free, and the most that each group holds in it', () => {
  for (let seed = 1; seed <= 20; seed++) {
    const r = random(seed)
    const shape = { events: 120, older: 6, stacks: 3, alloc: 0.5, size: () => Math.floor(1 + r() * 1000) }
    const data = randomDevice(shape, seed)
    const groups = { count: 4, of: Uint8Array.from({ length: data.N }, () => Math.floor(r() * 4)) } as unknown as Groups
    const mask = seed % 2 ? null : Uint8Array.from({ length: data.N }, () => (r() < 0.7 ? 1 : 0))
    const first = Math.floor(r() * data.n)
    const last = first + Math.floor(r() * (data.n - first))
    const sums = sumsInRange(data, groups, mask, { first, last })
    const all = (from: number, to: number, of: (position: number) => number): number =>
      Math.max(...Array.from({ length: to - from + 1 }, (_, i) => of(from + i)))
    const held = (position: number, passes: (id: number) => boolean): number => {
      let bytes = 0
      for (let id = 0; id < data.N; id++)
        if ((!mask || mask[id]) && passes(id) && data.start[id] <= position && data.end[id] > position)
          bytes += data.size[id]
      return bytes
    }
    const sum = (passes: (id: number) => boolean): number[] => {
      const ids = Array.from({ length: data.N }, (_, id) => id).filter((id) => (!mask || mask[id]) && passes(id))
      return [ids.length, ids.reduce((bytes, id) => bytes + data.size[id], 0)]
    }
    for (let group = 0; group < 4; group++) {
      const of = (id: number): boolean => groups.of[id] === group
      const born = sum((id) => of(id) && data.start[id] - 1 >= first && data.start[id] - 1 <= last)
      const died = sum((id) => of(id) && data.end[id] < data.P && data.end[id] - 1 >= first && data.end[id] - 1 <= last)
      assert.deepEqual([sums.births[group], sums.allocated[group]], born)
      assert.deepEqual([sums.frees[group], sums.freed[group]], died)
      assert.equal(
        sums.peak[group],
        all(first, last + 1, (position) => held(position, of)),
      )
    }
    assert.equal(
      sums.peakOfAll,
      all(first, last + 1, (position) => held(position, () => true)),
    )
  }
})

test('a window means the whole events in it', () => {
  const ten = info({ events: 10 })
  assert.deepEqual(rangeOf(ten, null), { first: 0, last: 9 })
  assert.deepEqual(rangeOf(ten, [2.5, 6.5]), { first: 3, last: 6 })
  assert.deepEqual(rangeOf(ten, [-1, 20]), { first: 0, last: 9 })
  assert.deepEqual(rangeOf(ten, [2.2, 2.4]), { first: 3, last: 3 }, 'at least one')
})

test('the category of a group is that of most of its bytes at the peak, else of all', () => {
  const data = {
    N: 4,
    start: Int32Array.of(1, 1, 5, 5),
    end: Int32Array.of(9, 9, 9, 9),
    size: Float64Array.of(5, 7, 100, 1),
    category: Uint8Array.of(2, 1, 0, 1),
    info: { categories: ['a', 'b', 'c'], peak_event: 1 },
  } as unknown as DeviceData
  const main = (of: number[], mask: Uint8Array | null = null): number[] => [
    ...mainCategories(data, { count: 3, of } as unknown as Groups, mask),
  ]
  assert.deepEqual(main([0, 0, 0, 1]), [1, 1, -1], '7 bytes of b at the peak, 100 of a later')
  assert.deepEqual(main([0, 0, 1, 1]), [1, 0, -1])
  assert.deepEqual(main([0, 0, 1, 1], Uint8Array.of(1, 0, 0, 1)), [2, 1, -1])
})

test('rows of a difference that say nothing are folded: equal lines with other callers, and less than a thousandth', () => {
  const row = (name: string, before: number, after: number): Row => ({
    key: 0,
    name,
    short: '',
    before,
    after,
    countBefore: 1,
    countAfter: 1,
    stack: 1,
    stackBefore: 1,
  })
  const rows = [
    row('f a.py:1 ← x', 0, 500),
    row('f a.py:1 ← y', 500, 0),
    row('g a.py:2 ← x', 100, 400),
    row('h a.py:3 ← x', 10, 10.5),
  ]
  assert.deepEqual(
    withWeight(rows, 'stack', 1000).map(({ name }) => name[0]),
    ['g'],
  )
  assert.equal(withWeight(rows, 'function', 1000).length, 3, 'names of functions have no callers')
  assert.equal(withWeight(rows.slice(3), 'stack', 1000).length, 1, 'all, where none says anything')
})

/** Stacks as texts, innermost frame first: "forward linear" is Python, "at::x" is not. */
function stacksOf(...texts: string[]): Stacks {
  const frames: Frame[] = []
  const [frameOf, caller]: [number[], number[]] = [[], []]
  const nodes = new Map<string, number>()
  const leaf = texts.map((text) => {
    let above = -1
    const names = text.split(' ').reverse()
    names.forEach((name, i) => {
      const key = names.slice(0, i + 1).join(' ')
      if (!nodes.has(key)) {
        let id = frames.findIndex((frame) => frame.name === name)
        if (id < 0) id = frames.push({ name, python: !name.includes('::') } as Frame) - 1
        nodes.set(key, frameOf.push(id) - 1)
        caller.push(above)
      }
      above = nodes.get(key)!
    })
    return above
  })
  const top = (stack: number): Frame =>
    frames[frameOf[stack < 0 ? 0 : firstPython(leaf[stack], frameOf, caller, frames)]]
  const trie = { frameOf: Int32Array.from(frameOf), caller: Int32Array.from(caller), leaf: Int32Array.from(leaf) }
  return {
    count: texts.length,
    top,
    operator: () => '',
    trie: { ...trie, frame: (id: number) => frames[id] },
  } as unknown as Stacks
}

function firstPython(node: number, frameOf: number[], caller: number[], frames: Frame[]): number {
  while (!frames[frameOf[node]].python) node = caller[node]
  return node
}

test('callers that most stacks share are said once, and stacks that read alike are told apart farther out', () => {
  const named = (...texts: string[]): { names: string[]; common: string } => {
    const stacks = stacksOf(...texts)
    const callers = callersOf(stacks, texts.keys(), (frame) => frame.python)
    const name = (frame: Frame): string => frame.name
    return {
      names: texts.map((_, stack) => withCallers(name(stacks.top(stack)!), callers.of(stack), name, ' < ')),
      common: callers.common.map(name).join(' < '),
    }
  }
  assert.deepEqual(
    named('at::mm mlp block train main', 'softmax attention block train main', 'norm block train main'),
    {
      names: ['mlp < …', 'softmax < attention < …', 'norm < …'],
      common: 'block < train',
    },
  )
  assert.deepEqual(
    named('a b c d train main', 'e f g d train main').names,
    ['a < b < c', 'e < f < g'],
    'nothing is cut that would not be named',
  )
  assert.deepEqual(
    named('mm linear attention up x main', 'mm linear attention down x main', 'mm linear attention down y main').names,
    [
      'mm < linear < attention < … up',
      'mm < linear < attention < … down < … x',
      'mm < linear < attention < … down < … y',
    ],
  )
  assert.deepEqual(named('a b', 'c d', 'e b', 'f b').names, ['a < b', 'c < d', 'e < b', 'f < b'], 'three of four')
})

test('what most names begin with is cut at a separator, never a name of its own', () => {
  const parts = ['model.decoder.0.attn', 'model.decoder.0.mlp', 'model.decoder.1.attn', 'model.decoder.11', 'head']
  assert.equal(commonStart(parts), 'model.decoder.')
  assert.deepEqual(
    parts.map((name) => without(name, 'model.decoder.')),
    ['…0.attn', '…0.mlp', '…1.attn', '…11', 'head'],
  )
  assert.equal(commonStart(['memory_snapshot-rank0.pickle', 'memory_snapshot-rank12.pickle']), 'memory_snapshot-')
  assert.equal(commonStart(['model.py:1', 'model.py:2']), '', 'too short to be worth a note')
  assert.equal(commonStart(['before_the_fix.pickle', 'after_the_fix.pickle']), '')
  assert.equal(commonStart(['only_one_name']), '')
  assert.equal(without('model.decoder.', 'model.decoder.'), 'model.decoder.')
})

test('a selected range is read within the events of a device', () => {
  const ten = info({ events: 10 })
  assert.deepEqual(readEventRange('3..7', ten), { first: 3, last: 7 })
  assert.deepEqual(readEventRange('8..99', ten), { first: 8, last: 9 })
  assert.equal(readEventRange('7', ten), null)
  assert.equal(readEventRange('3..7', info({ events: 0 })), null)
  assert.deepEqual(readEventRange(writeEventRange({ first: 4, last: 4 }), ten), { first: 4, last: 4 })
})
