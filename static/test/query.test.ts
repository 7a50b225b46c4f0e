import assert from 'node:assert/strict'
import { test } from 'node:test'
import sizes from '../../tests/size_vectors.json'
import type { DeviceData, DeviceInfo, Stacks, StackTrie } from '../src/data/model'
import { parseSize, QueryError, type Text } from '../src/search/fields'
import { asksForTimes, parse } from '../src/search/grammar'
import { evaluateQuery, liveMatches, type Matches, nextBySize, rankBySize } from '../src/search/matches'
import { OUTSIDE_STEPS, positionsWithin, stepQueries } from '../src/search/steps'
import { suggest, wordAt } from '../src/search/suggest'
import { Folded, StackTexts } from '../src/search/texts'
import { stepsOf } from '../src/steps/steps'
import { info, random, randomDevice } from './trace'

test('a text holds parts in their order, in any case', () => {
  const having = (texts: string[], ...parts: string[]): number[] => [...new Folded(texts).having(parts)]
  assert.deepEqual(having(['ABC', 'b', '', 'cb'], 'b', 'c'), [1, 0, 0, 0])
  assert.deepEqual(having(['aa', 'aaa'], 'aa', 'a'), [0, 1])
  assert.deepEqual(having(['', 'x']), [0, 1])
})

test('sizes are read as the library reads them', () => {
  const read = Object.fromEntries(Object.keys(sizes.sizes).map((text) => [text, parseSize(text)]))
  assert.deepEqual(read, sizes.sizes)
  assert.deepEqual(
    sizes.no_sizes.filter((text) => parseSize(text) !== null),
    [],
  )
})

/** Stacks 0: none, 1: a.py f, 2: a.py f called by b.py g, 3: b.py g. */
const trie: StackTrie = {
  frameOf: Int32Array.of(0, 1, 0),
  caller: Int32Array.of(-1, -1, 1),
  leaf: Int32Array.of(-1, 0, 2, 1),
  frames: {
    filenames: ['lib/a.py', 'b.py'],
    names: ['f', 'Gee'],
    name: Uint32Array.of(0, 1),
    file: Uint32Array.of(0, 1),
    line: Int32Array.of(3, 12),
  },
  isNoise: () => false,
  isPython: () => true,
  frame: () => {
    throw new Error('not needed')
  },
}
const stacks = { count: 4, trie } as unknown as Stacks

test('a query tells whether it needs times', () => {
  const needy = ['time>1ms', 'time:1ms..2ms size>1', '-time<3', 'adam OR (size>1MiB lifetime>2ms)', 'lifetime:1us..9us']
  const others = ['', 'adam', '"time>1ms"', 'lifetime>100', 'size>1 -live:peak', 'event:1..2', 'time>', '(']
  assert.deepEqual(
    needy.map(asksForTimes),
    needy.map(() => true),
  )
  assert.deepEqual(
    others.map(asksForTimes),
    others.map(() => false),
  )
})

test('modules, shapes and dtypes are found by whole parts', () => {
  const d = randomDevice({ events: 20, older: 0, stacks: 3, alloc: 0.9, size: () => 1 }, 3)
  const named = {
    modules: ['', 'layers.7', 'layers.7.attn', 'layers.70'],
    shapes: ['', '4x128'],
    dtypes: ['', 'float32'],
    grad_fns: ['', 'MulBackward0 AddmmBackward0'],
  }
  const device = { ...d.info, ...named }
  d.module = Uint8Array.from({ length: d.N }, (_, id) => id % 4)
  d.shape = d.dtype = d.savedBy = Uint8Array.from({ length: d.N }, (_, id) => id % 2)
  const found = (query: string): string[] => {
    const { mask } = evaluateQuery(d, stacks, device, query)
    return [...new Set([...d.module].flatMap((module, id) => (mask[id] ? [device.modules[module]] : [])))].sort()
  }
  assert.deepEqual(found('module:layers.7'), ['layers.7', 'layers.7.attn'])
  assert.deepEqual(found('module:"LAYERS.7"'), ['layers.7'])
  assert.deepEqual(found('module:*.attn'), ['layers.7.attn'])
  assert.deepEqual(found('module:attn'), [])
  assert.deepEqual(found('-module:*'), [''])
  assert.deepEqual(found('shape:*x128 dtype:*32'), ['layers.7', 'layers.70'])
  assert.deepEqual(found('saved:addmm'), ['layers.7', 'layers.70'])
  assert.deepEqual(found('shape:12 OR dtype:float OR saved:linear'), [])
})

test('stacks by file, function, place and line equal a walk along every stack', () => {
  const r = random(7)
  const pick = (below: number): number => Math.floor(r() * below)
  for (let round = 0; round < 60; round++) {
    const frames = 1 + pick(round % 2 ? 6 : 400)
    const nodes = pick(500)
    const files = 1 + pick(round % 3 ? 5 : 300)
    const filenames = Array.from({ length: files }, (_, i) => `dir${i % 7}/file${i}.py`)
    const names = Array.from({ length: files }, (_, i) => `fn${i}`)
    const codes = (count: number, below: number): number[] => Array.from({ length: count }, () => pick(below))
    const frameOf = codes(nodes, frames)
    const some: StackTrie = {
      ...trie,
      frameOf: Int32Array.from(frameOf),
      caller: Int32Array.from({ length: nodes }, (_, node) => pick(node + 1) - 1),
      leaf: Int32Array.from(codes(1 + pick(300), nodes + 1), (node) => node - 1),
      frames: {
        filenames,
        names,
        file: Uint32Array.from(codes(frames, files)),
        name: Uint32Array.from(codes(frames, files)),
        line: Int32Array.from(codes(frames, 9)),
      },
    }
    const { file, name, line } = some.frames
    const walked = (is: (frame: number) => boolean): number[] =>
      Array.from(some.leaf, (leaf) => {
        for (let node = leaf; node >= 0; node = some.caller[node]) if (is(some.frameOf[node])) return 1
        return 0
      })
    const texts = StackTexts.of({ count: some.leaf.length, trie: some } as unknown as Stacks)
    const text = (part: string, place: { parts: string[]; line: number } | null = null): Text => ({
      kind: 'text',
      parts: [part],
      place,
    })
    const part = String(pick(files))
    assert.deepEqual(
      [...texts.holding('file', text(part))],
      walked((frame) => filenames[file[frame]].includes(part)),
    )
    assert.deepEqual(
      [...texts.holding('func', text(part))],
      walked((frame) => names[name[frame]].includes(part)),
    )
    assert.deepEqual(
      [...texts.holding('either', text('none', { parts: [part], line: 4 }))],
      walked((frame) => filenames[file[frame]].includes(part) && line[frame] === 4),
    )
    assert.deepEqual(
      [...texts.onLine(2, 3)],
      walked((frame) => line[frame] === 2 || line[frame] === 3),
    )
    assert.deepEqual(
      texts.distinct('func', part),
      names.filter((text) => text.includes(part)),
    )
  }
})

test('masks, counts and bytes equal a look at every allocation', () => {
  const d = randomDevice(
    { events: 800, older: 20, stacks: 3, alloc: 0.55, size: (r) => Math.ceil(r() * 3000), times: true },
    3,
  )
  const device = { ...d.info, categories: ['unknown', 'parameter', 'gradient'], streams: ['7'], pools: ['(0, 1)'] }
  const peak = device.peak_event + 1
  const cases: [string, (id: number) => boolean][] = [
    ['size>1KiB', (id) => d.size[id] > 1024],
    ['-size>1KiB OR live:peak', (id) => d.size[id] <= 1024 || (d.start[id] <= peak && d.end[id] > peak)],
    ['gee', (id) => d.stack[id] >= 2],
    ['file:LIB\\a.py', (id) => d.stack[id] === 1 || d.stack[id] === 2],
    ['b.py:12', (id) => d.stack[id] >= 2],
    ['b.py:13', () => false],
    ['line:3 -line:12', (id) => d.stack[id] === 1],
    ['category:param (size<100 OR size>2900)', (id) => d.category[id] === 1 && (d.size[id] < 100 || d.size[id] > 2900)],
    ['stream:7 pool:private origin:traced', () => true],
    ['stream:8', () => false],
    ['lifetime>100', (id) => d.end[id] - d.start[id] > 100],
    ['time>1ms', (id) => d.start[id] > 0 && d.timeUs![d.start[id] - 1] > 1000],
    ['device:0 device:cuda', () => true],
  ]
  for (const [query, is] of cases) {
    const want = Array.from(
      { length: d.N },
      (_, id) => is(id) && (!query.includes('traced') || d.start[id] > 0 || id >= device.ghosts + device.freed),
    )
    const found = evaluateQuery(d, stacks, device, query)
    assert.deepEqual([...found.mask].map(Boolean), want, query)
    const ids = want.flatMap((hit, id) => (hit ? [id] : []))
    assert.equal(found.count, ids.length)
    assert.equal(
      found.bytes,
      ids.reduce((sum, id) => sum + d.size[id], 0),
    )
    const live = ids.filter((id) => d.start[id] <= peak && d.end[id] > peak)
    assert.equal(
      liveMatches(d, found.mask, peak),
      live.reduce((sum, id) => sum + d.size[id], 0),
    )
  }
})

test('what cannot match says why', () => {
  const d = randomDevice({ events: 50, older: 0, stacks: 3, alloc: 0.5, size: () => 1 }, 1)
  const untimed = info({ ...d.info, time0: null, stats: { oom_events: [] } as never, left_out: ['addr_lo'] })
  assert.deepEqual(evaluateQuery(d, stacks, untimed, 'time>1 OR live:oom').notes, [
    'this snapshot was recorded without times',
    'no allocation failed for want of memory',
  ])
  const { notes, count } = evaluateQuery(d, stacks, untimed, 'addr>0')
  assert.match(notes[0], /without addresses/)
  assert.equal(count, 0)
})

test('addresses are exact in all 64 bits', () => {
  const d = randomDevice({ events: 4, older: 2, stacks: 3, alloc: 0, size: () => 512 }, 1)
  d.addrHi = Uint32Array.of(0xffffffff, 0x7f12)
  d.addrLo = Uint32Array.of(0xfffffe00, 0)
  const ids = (query: string): number[] =>
    [...evaluateQuery(d, stacks, d.info, query).mask].flatMap((hit, id) => (hit ? [id] : []))
  assert.deepEqual(ids('addr:0xffffffffffffffff'), [0])
  assert.deepEqual(ids('addr:18446744073709551103'), [])
  assert.deepEqual(ids('addr:0x7f12000001ff'), [1])
  assert.deepEqual(ids('addr:0x7f1200000200'), [])
  assert.deepEqual(ids('addr<0x7f1200000000'), [])
  assert.deepEqual(ids('addr:0x7f1100000000..0x7f1200000000'), [1])
  assert.deepEqual(ids('addr>0xfffffffffffffffe'), [0])
  assert.deepEqual(ids('addr>0xffffffffffffffff'), [])
})

/** Raw spans of the manifest from [name, first event, last event]. */
function rawSpans(spans: readonly (readonly [string, number, number])[]): NonNullable<DeviceInfo['spans']> {
  const names = [...new Set(spans.map(([name]) => name))]
  return {
    names,
    name: spans.map(([name]) => names.indexOf(name)),
    first: spans.map(([, first], i) => first - (i ? spans[i - 1][1] : 0)),
    events: spans.map(([, first, last]) => last - first + 1),
    depth: spans.map(() => 0),
  }
}

function rawSteps(steps: readonly (readonly [number, number, number])[]): NonNullable<DeviceInfo['steps']> {
  const { first, events } = rawSpans(steps.map(([, from, to]) => ['', from, to]))
  return {
    source: 'annotation',
    names: steps.map(([number]) => `Step ${number}`),
    numbers: steps.map(([number]) => number),
    first,
    events,
  }
}

test('positions lie within spans of any kind, nested, overlapping, empty, and over the whole trace', () => {
  const r = random(8)
  for (let round = 0; round < 60; round++) {
    const n = 1 + Math.floor(r() * 40)
    const spans = Array.from({ length: Math.floor(r() * 9) }, () => {
      const first = Math.floor(r() * n)
      return ['Aa', 'ab', 'B'][Math.floor(r() * 3)] === 'B'
        ? (['B', first, first - 1] as const)
        : (['Aa', first, Math.min(n - 1, first + Math.floor(r() * n))] as const)
    }).sort((a, b) => a[1] - b[1])
    const steps = [
      [3, 0, 0],
      [4, 1, n - 1],
    ].slice(0, Math.floor(r() * 3)) as [number, number, number][]
    const device = info({ events: n, spans: rawSpans(spans), steps: rawSteps(steps) })
    const all = [
      ...spans.map(([name, ...ends]) => [name.toLowerCase(), ...ends] as const),
      ...steps.map(([number, ...ends]) => [`step ${number}`, ...ends] as const),
    ]
    for (const part of ['a', 'b', 'step', '4']) {
      const { positions, whyNone } = positionsWithin(device, { kind: 'text', parts: [part], place: null })
      const meant = all.filter(([name]) => name.includes(part))
      assert.deepEqual(
        [...positions],
        Array.from({ length: n + 1 }, (_, s) =>
          Number(meant.some(([, first, last]) => first <= s - 1 && s - 1 <= last)),
        ),
      )
      assert.equal(whyNone === '', meant.length > 0)
    }
    const { positions } = positionsWithin(device, { kind: 'range', low: 4, high: null, unit: '' })
    assert.deepEqual(
      [...positions],
      Array.from({ length: n + 1 }, (_, s) => Number(steps.length > 1 && s >= 2)),
    )
  }
})

test('the query of a step finds its allocations and no others', () => {
  const d = randomDevice({ events: 400, older: 10, stacks: 3, alloc: 0.6, size: () => 1 }, 2)
  // Numbers may begin anew. One event alone has no query.
  d.info.steps = rawSteps([
    [1, 0, 99],
    [2, 100, 180],
    [1, 190, 250],
    [7, 251, 251],
    [7, 252, 252],
    [9, 300, 399],
  ])
  const steps = stepsOf(d.info, d)!
  assert.deepEqual(stepQueries(steps), ['event:0..99', 'step:2', 'event:190..250', null, null, 'step:9'])
  for (const [at, query] of [OUTSIDE_STEPS, ...stepQueries(steps)].entries()) {
    if (query !== null)
      assert.deepEqual(
        [...evaluateQuery(d, stacks, d.info, query).mask],
        [...steps.of].map((step) => Number(step === at - 1)),
        query,
      )
  }
})

test('steps that are not known are told, and no times are needed', () => {
  const d = randomDevice({ events: 50, older: 0, stacks: 3, alloc: 0.5, size: () => 1 }, 1)
  const untimed = info({ ...d.info, time0: null, left_out: ['times'], spans: rawSpans([['forward', 0, 9]]) })
  const notes = (query: string, device = untimed): string[] => evaluateQuery(d, stacks, device, query).notes
  assert.deepEqual(notes('step:3'), ['no steps are known on this device'])
  assert.deepEqual(notes('step:3', { ...untimed, steps: rawSteps([[1, 0, 9]]) }), [
    'no step of this device has such a number',
  ])
  assert.deepEqual(notes('step:backward'), ['no step and no annotation of this device has such a name'])
  assert.deepEqual(notes('step:FORWARD'), [])
  assert.equal(evaluateQuery(d, stacks, untimed, 'step:forward').count, d.start.filter((s) => s <= 10).length)
})

test('steps through matches are those of a sort, both ways and around', () => {
  const r = random(6)
  const size = Float64Array.from({ length: 400 }, (_, i) =>
    i % 3 ? Math.floor(r() * 5) * 65536 : Math.floor(2 ** (r() * 53)),
  )
  const mask = Uint8Array.from(size, () => Number(r() < 0.8))
  const ids = [...mask.keys()].filter((id) => mask[id])
  const order = ids.sort((a, b) => size[b] - size[a] || a - b)
  const data = { size } as DeviceData
  const found = { mask } as Matches
  order.forEach((id, i) => {
    assert.equal(rankBySize(data, found, id), i)
    assert.equal(nextBySize(data, found, id, 1), order[(i + 1) % order.length])
    assert.equal(nextBySize(data, found, id, -1), order.at(i - 1))
  })
  for (const start of [null, mask.indexOf(0)]) {
    assert.equal(nextBySize(data, found, start, 1), order[0])
    assert.equal(nextBySize(data, found, start, -1), order.at(-1))
  }
  assert.equal(nextBySize(data, { mask: new Uint8Array(400) } as Matches, 3, 1), -1)
})

test('a bad query says where', () => {
  for (const [query, position, length] of [
    ['a size:big b', 7, 3],
    ['(a', 0, 1],
    ['a OR', 2, 2],
    ['é "x', 2, 2],
  ] as const) {
    assert.throws(
      () => parse(query),
      (error: QueryError) => error instanceof QueryError && error.position === position && error.length === length,
    )
  }
})

test('the word before the caret is what a suggestion replaces', () => {
  const at = (text: string): [number, number] => {
    const caret = text.indexOf('|')
    const { from, to } = wordAt(text.replace('|', ''), caret)
    return [from, to]
  }
  assert.deepEqual(at('|'), [0, 0])
  assert.deepEqual(at('siz|'), [0, 3])
  assert.deepEqual(at('conv -siz|'), [6, 9])
  assert.deepEqual(at('conv si|z b'), [5, 9])
  assert.deepEqual(at('(-cat|'), [2, 5])
  assert.deepEqual(at('(cat|)'), [1, 4])
  assert.deepEqual(at('file:"a b|'), [0, 9])
  assert.deepEqual(
    suggest('conv cat', 8, null).map((s) => [s.insert, s.from, s.to]),
    [['category:', 5, 8]],
  )
  assert.deepEqual(suggest('', 0, null).map((s) => s.insert).length, 26)
})
