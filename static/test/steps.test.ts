// Steps and spans: what the manifest says becomes rows and a step of each allocation, and rows become pieces of pixels.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { RawSpans } from '../src/data/contracts'
import type { DeviceData } from '../src/data/model'
import type { DecodedBlob } from '../src/data/columns'
import { setTimes } from '../src/data/on-demand'
import { activityRows, readActivities } from '../src/steps/activities'
import { nothing, runs, tracksOf } from '../src/steps/spans'
import { stepsOf } from '../src/steps/steps'
import { eventScale, timeScale } from '../src/views/shared/x-window'
import { countOf } from '../src/views/timeline/span-text'
import { piecesOf } from '../src/views/timeline/track-drawing'
import { info, random, randomDevice } from './trace'

const bytes = (r: () => number): number => 1 + Math.floor(r() * 1000)

/** Steps of random lengths with random gaps between them; some hold no event. */
function randomSteps(n: number, seed: number): { first: number[]; last: number[] } {
  const r = random(seed)
  const first: number[] = []
  const last: number[] = []
  for (let at = Math.floor(r() * 5); at < n; ) {
    const length = Math.floor(r() * 12)
    first.push(at)
    last.push(Math.min(n, at + length) - 1)
    at += length + Math.floor(r() * 3)
  }
  return { first, last }
}

const differences = (values: readonly number[]): number[] => values.map((value, i) => value - (i ? values[i - 1] : 0))

test('every allocation is born in the step that holds its alloc event', () => {
  for (let seed = 1; seed <= 20; seed++) {
    const d = randomDevice({ events: 300, older: 5, stacks: 4, alloc: 0.6, size: bytes }, seed)
    const { first, last } = randomSteps(300, seed)
    d.info.steps = {
      source: 'annotation',
      names: first.map((_, i) => `step ${i}`),
      numbers: first.map((_, i) => i),
      first: differences(first),
      events: first.map((a, i) => last[i] - a + 1),
    }
    const steps = stepsOf(d.info, d)!
    assert.deepEqual([...steps.first], first)
    assert.deepEqual([...steps.last], last)
    for (let id = 0; id < d.N; id++) {
      const event = d.start[id] - 1
      assert.equal(
        steps.of[id],
        event < 0 ? -1 : first.findIndex((a, i) => a <= event && event <= last[i]),
        `allocation ${id} of seed ${seed}`,
      )
    }
    assert.equal(stepsOf(d.info, d), steps, 'worked out once')
  }
})

test('without steps there are none', () => {
  const d = randomDevice({ events: 30, older: 0, stacks: 2, alloc: 0.6, size: bytes }, 3)
  assert.equal(stepsOf(d.info, d), null)
  assert.deepEqual(tracksOf(d.info, d), [])
})

test('stretches of one text are runs, and nothing joins over a gap', () => {
  const track = runs('metadata', '', ['', 'a', 'b'], [1, 1, 0, 1, 2, 2, 1], Int32Array.from([0, 3, 5, 6, 9, 12, 13]))
  // The first is from before the trace and has no event.
  assert.deepEqual([...track.first], [2, 5, 8, 12])
  assert.deepEqual([...track.last], [2, 5, 11, 12])
  assert.deepEqual([...Array.from(track.name)], [1, 1, 2, 1])
})

const nested: RawSpans = {
  names: ['step 0', 'forward', 'step 1'],
  name: [0, 1, 1, 2, 1],
  first: [0, 2, 3, 5, 1],
  events: [10, 3, 2, 10, 4],
  depth: [0, 1, 1, 0, 1],
}

test('spans lie in rows by their depth', () => {
  const tracks = tracksOf(info({ events: 20, spans: nested }), null)
  assert.deepEqual(
    tracks.map((track) => [track.kind, [...track.first], [...track.last]]),
    [
      ['annotation', [0, 10], [9, 19]],
      ['annotation', [2, 5, 11], [4, 6, 14]],
    ],
  )
})

test('spans that are the steps are shown once, and what was inside them moves up', () => {
  const steps = { source: 'annotation', names: ['step 0', 'step 1'], numbers: [0, 1], first: [0, 10], events: [10, 10] }
  const tracks = tracksOf(info({ events: 20, spans: nested, steps }), null)
  assert.deepEqual(
    tracks.map((track) => [track.kind, [...track.first]]),
    [
      ['step', [0, 10]],
      ['annotation', [2, 5, 11]],
    ],
  )
})

test('no span vanishes, however thin, and pieces do not overlap', () => {
  for (let seed = 1; seed <= 30; seed++) {
    const r = random(seed)
    const n = 4000
    const { first, last } = randomSteps(n, seed)
    const d = {
      ...info({ events: n }),
      steps: {
        source: 'stack',
        names: first.map((_, i) => `${i}`),
        numbers: first.map((_, i) => i),
        first: differences(first),
        events: first.map((a, i) => last[i] - a + 1),
      },
    }
    const [track] = tracksOf(d, null as DeviceData | null)
    const scale = eventScale(d)
    const x0 = seed % 3 ? Math.floor(r() * 3000) : -1
    const window = { x0, x1: seed % 3 ? x0 + 20 + r() * 900 : n }
    const width = 50 + Math.floor(r() * 900)
    const pieces = piecesOf(track, scale, window, width)
    const seen = new Set<number>()
    pieces.forEach((piece, i) => {
      for (let span = piece.from; span <= piece.to; span++) seen.add(span)
      assert.ok(piece.x1 - piece.x0 > 1 || piece.x1 >= width, 'wide enough to be seen')
      assert.ok(piece.x0 >= 0 && piece.x1 <= width)
      if (i > 0) assert.ok(piece.x0 >= pieces[i - 1].x0 && piece.from === pieces[i - 1].to + 1)
    })
    for (let span = 0; span < first.length; span++) {
      if (last[span] + 1 > window.x0 && first[span] < window.x1)
        assert.ok(seen.has(span), `span ${span} of seed ${seed}`)
    }
    assert.ok(pieces.length <= width, 'no more pieces than pixels')
  }
})

test('many kernels in a pixel are one piece, of which few are looked at', () => {
  const many = 300_000
  let looked = 0
  const edge = (shift: number): Float64Array =>
    new Proxy(new Float64Array(0), {
      get: (_, key) => (looked++, Number(key) * 10 + shift),
    })
  const track = { ...nothing('kernel', ''), first: new Int32Array(many), last: new Int32Array(many) }
  const kernels = { ...track, places: { from: edge(0), to: edge(9) } }
  const d = info({ events: 10 * many })
  const whole = { x0: 0, x1: 10 * many }
  const pieces = piecesOf(kernels, eventScale(d), whole, 900)
  assert.ok(looked < 900 * 100, `${looked}`)
  assert.equal(pieces[0].from, 0)
  assert.equal(pieces[pieces.length - 1].to, many - 1)
  assert.ok(pieces.every((piece, i) => i === 0 || piece.from === pieces[i - 1].to + 1))
  const close = piecesOf(kernels, eventScale(d), { x0: 1000, x1: 1100 }, 900)
  assert.deepEqual(
    close.map(({ from, to }) => [from, to]),
    Array.from({ length: 11 }, (_, i) => [100 + i, 100 + i]),
    'single ones',
  )
})

/** A clock with a long pause in its middle, of which the axis keeps a fiftieth. */
function pausedDevice(): DeviceData {
  const d = randomDevice({ events: 200, older: 0, stacks: 2, alloc: 0.6, size: bytes }, 5)
  setTimes(
    d,
    Float64Array.from({ length: 200 }, (_, i) => i * 10 + (i < 100 ? 0 : 100_000)),
  )
  return d
}

test('spans lie on the axis of time behind a pause that it shortens', () => {
  const d = pausedDevice()
  d.info.time0 = 0
  d.info.spans = { names: ['late'], name: [0], first: [150], events: [11], depth: [0], start_us: [101_500], us: [100] }
  const scale = timeScale(d)!
  assert.equal(scale.gaps.length, 1)
  const [track] = tracksOf(d.info, d)
  const [piece] = piecesOf(track, scale, scale, 1000)
  const pixel = (event: number): number => ((scale.toAxis(event) - scale.x0) / (scale.x1 - scale.x0)) * 1000
  assert.ok(Math.abs(piece.x0 - pixel(150)) < 1e-6 && Math.abs(piece.x1 - pixel(160)) < 1e-6, JSON.stringify(piece))
})

test('activities of a profiler lie between the events of their times on both axes', () => {
  const d = pausedDevice()
  d.info.activities = { trace: 'trace.json', rows: ['cost', 'operator'] }
  assert.deepEqual(
    activityRows(d.info).map((track) => [track.kind, track.first.length]),
    [
      ['cost', 0],
      ['operator', 0],
    ],
  )
  // 0.1 µs: one before the trace, one of half an event in its middle, several that are merged, one after the pause.
  const columns: Record<string, unknown> = {
    begin: Float64Array.of(-50, 1025, 2000, 1_030_000),
    length: Float64Array.of(20, 50, 400, 1000),
    name: Uint32Array.of(0, 1, 1, 0),
    count: Uint32Array.of(1, 1, 12, 1),
    row: Uint8Array.of(0, 1, 1, 1),
    names: ['cudaMalloc', 'aten::mm'],
  }
  const read = (name: string): unknown => columns[name.replace(`${d.info.section}.activity.`, '')]
  const blob = { f64: read, u32: read, u8: read, json: read } as unknown as DecodedBlob
  const tracks = readActivities(d.info, blob, d.clockUs!)
  assert.deepEqual(
    tracks.map((track) => [track.kind, track.first.length]),
    [
      ['cost', 1],
      ['operator', 3],
    ],
  )
  const [cost, operators] = tracks
  assert.deepEqual([cost.places!.from[0], cost.places!.to[0]], [0, 0])
  assert.deepEqual(
    [...operators.places!.from].map((place, i) => [place, operators.places!.to[i]]),
    [
      [10.25, 10.75],
      [20, 24],
      [199, 199],
    ],
  )
  assert.deepEqual([operators.first[0], operators.last[0]], [11, 10], 'no event')
  assert.deepEqual([operators.first[1], operators.last[1]], [20, 24])
  const pieces = piecesOf(operators, eventScale(d.info), { x0: 0, x1: 200 }, 2000)
  assert.deepEqual(
    pieces.slice(0, 2).map(({ x0, x1 }) => [x0, x1]),
    [
      [102.5, 107.5],
      [200, 240],
    ],
  )
  assert.equal(countOf(operators, 0, 1), 13)
})
