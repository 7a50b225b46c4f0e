import assert from 'node:assert/strict'
import { test } from 'node:test'
import { worstMoments } from '../src/allocator/curves'
import { largestFree } from '../src/allocator/largest-free'
import type { Replay } from '../src/allocator/replay'
import { roundedSize, rulesOf } from '../src/allocator/rounding'
import { stateAt } from '../src/allocator/state'
import { SuccessorSet } from '../src/allocator/successor'
import { addressAt, addressAxisOf, ticksOf } from '../src/views/segments/time-layout'
import { allocatorTrace, BASE, type MadeTrace, replayOf, type TraceWish, type TrueSegment } from './allocator-trace'
import type { DeviceData } from '../src/data/model'
import { random } from './trace'

const MIB = 2 ** 20
const WISHES: TraceWish[] = [
  { events: 1200, before: 0, expandable: false, keepStates: true },
  { events: 900, before: 700, expandable: false, keepStates: true },
  { events: 1200, before: 0, expandable: true, keepStates: true },
  { events: 900, before: 500, expandable: true, keepStates: true },
  { events: 1200, before: 0, expandable: false, maxSplit: 30 * MIB, keepStates: true },
]
const TRACES = WISHES.flatMap((wish, i) =>
  [1, 2, 3].map((seed) => ({ wish, trace: allocatorTrace(wish, 10 * i + seed) })),
)

/** The state as the little allocator writes its own. */
function shown(replay: Replay, position: number): unknown[] {
  const state = stateAt(replay, position)
  return Array.from({ length: state.segments }, (_, i) => ({
    address: replay.space.text(state.start[i]),
    size: state.end[i] - state.start[i],
    blocks: Array.from({ length: state.first[i + 1] - state.first[i] }, (_, k) => state.first[i] + k).map((block) => ({
      address: replay.space.text(state.blockStart[block]),
      size: state.blockEnd[block] - state.blockStart[block],
      id: state.blockId[block],
    })),
  }))
}

function truth(segments: TrueSegment[]): unknown[] {
  const text = (address: number): string => '0x' + address.toString(16)
  return segments
    .slice()
    .sort((a, b) => a.address - b.address)
    .map(({ address, size, blocks }) => ({
      address: text(address),
      size,
      blocks: blocks.map((block) => ({ address: text(block.address), size: block.size, id: block.id })),
    }))
}

const replayed = ({ data, settings }: MadeTrace): Replay => replayOf(data, settings)

test('segments and blocks at any position are those of an allocator that kept them', () => {
  for (const { wish, trace } of TRACES) {
    if (wish.before > 0 && !wish.expandable) continue // remainders kept before the trace: told apart below
    const replay = replayed(trace)
    for (let position = 0; position < trace.data.P; position += 7) {
      assert.deepEqual(
        shown(replay, position),
        truth(trace.states[position]),
        `position ${position} of ${JSON.stringify(wish)}`,
      )
    }
  }
})

test('blocks from before the trace are right or said to be assumed', () => {
  for (const { wish, trace } of TRACES) {
    if (wish.before === 0) continue
    const replay = replayed(trace)
    for (const state of trace.states) {
      for (const { blocks } of state) {
        for (const { id, size } of blocks) {
          if (id < 0 || replay.block[id] === size) continue
          assert.ok(
            replay.assumed[id] && trace.data.start[id] === 0 && size - replay.block[id] <= MIB,
            `allocation ${id}`,
          )
        }
      }
    }
  }
})

/** Whether the events from before position s up to the next alloc only reserve memory. */
function isPassing(data: DeviceData, s: number): boolean {
  const grows = (event: number): boolean => {
    const row = data.other.event.indexOf(event)
    return row >= 0 && /^segment_(alloc|map)$/.test(data.info.actions[data.other.action[row]])
  }
  if (s === 0 || !grows(s - 1)) return false
  let event = s
  while (event < data.n && grows(event)) event++
  return data.start.includes(event + 1)
}

test('curves are what summing the blocks of the state gives', () => {
  for (const { wish, trace } of TRACES) {
    if (wish.before > 0 && !wish.expandable) continue
    const { data } = trace
    const replay = replayed(trace)
    const free = largestFree(replay, data)
    let worst = -Infinity
    for (let s = 0; s < data.P; s++) {
      let rounding = 0
      let wholly = 0
      let split = 0
      let largest = 0
      for (const { blocks, size } of trace.states[s]) {
        for (const block of blocks) {
          if (block.id >= 0) rounding += block.size - data.size[block.id]
          else {
            largest = Math.max(largest, block.size)
            if (blocks.length > 1) split += block.size
          }
        }
        if (blocks.length === 1 && blocks[0].id < 0) wholly += size
      }
      assert.equal(replay.rounding[s], rounding)
      assert.equal(replay.whollyFree[s], wholly)
      assert.equal(free[s], largest)
      if (s % 31 === 0) {
        const { totals } = stateAt(replay, s)
        assert.equal(totals.split, split)
        assert.equal(totals.largestFree, largest)
      }
      // Between a new segment and the alloc that it is for, its bytes are not lost.
      if (!isPassing(data, s)) worst = Math.max(worst, data.reserved[s] - data.allocated[s])
    }
    const at = worstMoments(data, replay.whollyFree).fragmentation
    assert.equal(data.reserved[at] - data.allocated[at], worst)
  }
})

test('a set tells its next and previous members', () => {
  const r = random(4)
  const set = new SuccessorSet(5000)
  const plain = new Set<number>()
  for (let i = 0; i < 4000; i++) {
    const value = Math.floor(r() ** 2 * 5000)
    if (r() < 0.5) set.add(value), plain.add(value)
    else set.remove(value), plain.delete(value)
    const asked = Math.floor(r() * 5000)
    const sorted = [...plain].sort((a, b) => a - b)
    assert.equal(set.next(asked), sorted.find((member) => member >= asked) ?? -1)
    assert.equal(set.previous(asked), sorted.filter((member) => member <= asked).pop() ?? -1)
  }
  assert.equal(set.previous(-1), -1)
  assert.equal(set.next(5000), -1)
})

test('requests are rounded as the settings say', () => {
  const plain = rulesOf(undefined, 'cuda')
  assert.deepEqual(
    [0, 1, 512, 513, 3 * MIB + 1].map((size) => roundedSize(plain, size)),
    [512, 512, 512, 1024, 3 * MIB + 512],
  )
  const divided = rulesOf({ roundup_power2_divisions: { 1: 4, 1024: 8 }, max_split_size: -1 }, 'cuda')
  assert.deepEqual(
    [1200, 2000, 5000, 1.2 * MIB, 1030 * MIB, 1300 * MIB].map((size) => roundedSize(divided, Math.floor(size))),
    [1536, 2048, 5120, 1.25 * MIB, 1152 * MIB, 1408 * MIB],
  )
  assert.deepEqual(
    [1000, 1024, 5000].map((size) => roundedSize(rulesOf({}, 'host'), size)),
    [1024, 1024, 8192],
  )
})

test('what lies in no known segment is shown apart and counted', () => {
  const { data, settings } = allocatorTrace(WISHES[0], 77)
  const none = {
    ...data,
    segments: { ...data.segments, size: new Float64Array(0) },
    other: { ...data.other, event: new Int32Array(0) },
  }
  const replay = replayOf(none, settings)
  const state = stateAt(replay, none.P - 1)
  assert.ok(state.totals.outside > 0 && state.row.every((row) => row === -1))
  assert.equal(state.totals.outsideBytes, data.allocated[data.P - 1])
  assert.ok(state.blockId.every((id) => id >= 0) && state.start[0] >= 0 && BASE > 0)
})

test('addresses beside the map over time are those of their places, in sight and apart', () => {
  for (const {
    trace: { data, settings },
  } of TRACES) {
    const axis = addressAxisOf(replayOf(data, settings))
    const r = random(data.N)
    for (let round = 0; round < 40; round++) {
      const from = round === 0 ? 0 : r() * axis.length * 0.9
      const to = round === 0 ? axis.length : from + Math.max(4096, r() ** 4 * (axis.length - from))
      const room = (to - from) / 25
      const ticks = ticksOf(axis, [from, to], room)
      const places = ticks.map(({ place }) => place).sort((a, b) => a - b)
      assert.ok(
        places.every((place, i) => place >= from && place <= to && (i === 0 || place - places[i - 1] >= room * 0.999)),
      )
      for (const { place, address } of ticks)
        assert.ok(Math.abs(addressAt(axis, place + 0.25) - address) < 1, `${place} of ${axis.length}`)
      // A window that begins in a stretch and is full of it has several.
      const inside = axis.start.findIndex(
        (_, i) => axis.place[i] <= from && axis.place[i] + axis.end[i] - axis.start[i] >= to,
      )
      if (inside >= 0) assert.ok(ticks.length >= 2)
    }
  }
})
