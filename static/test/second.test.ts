import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { DeviceInfo } from '../src/data/model'
import { afterSecond, firstSecond, type Second, secondOf, stateOfSecond, withSecond } from '../src/ui/second'
import type { State } from '../src/ui/state'

const DEVICES = [1000, 500, 1000].map((events, index) => ({ index, events, peak_event: 10 })) as DeviceInfo[]
const FIRST: State = {
  device: 0,
  view: 'flame',
  axis: 'event',
  x: [99, 199],
  y: null,
  select: 7,
  oom: null,
  stack: null,
  at: 50,
  query: 'size>1MiB',
  colour: 'category',
  options: { 'flame.root': 'leaf' },
  theme: 'dark',
  noise: false,
}
const SECOND: Second = { device: 1, at: -1, x: null, select: 3, oom: null, apart: false, stacked: false }

test('what the options say of the second pane is read back', () => {
  const apart = { ...SECOND, x: [1.5, 20] as const, apart: true, stacked: true, oom: 4, at: null }
  for (const second of [SECOND, apart]) {
    const options = withSecond(FIRST.options, second)
    assert.deepEqual(secondOf(options, 3), second)
    assert.equal(options['flame.root'], 'leaf')
    assert.deepEqual(withSecond(options, null), FIRST.options)
  }
  assert.equal(secondOf(FIRST.options, 3), null)
  for (const device of ['3', '-1', 'x', '']) assert.equal(secondOf({ 'split.device': device }, 3), null)
})

test('the second pane has its own device and moment, and the rest of the first', () => {
  const shown = stateOfSecond(FIRST, SECOND, DEVICES)
  assert.deepEqual([shown.device, shown.at, shown.select], [1, -1, 3])
  assert.deepEqual([shown.view, shown.query, shown.colour, shown.theme], ['flame', 'size>1MiB', 'category', 'dark'])
  assert.deepEqual(shown.x, [49, 99], 'the same part of a trace half as long')
  assert.equal(stateOfSecond(FIRST, { ...SECOND, apart: true }, DEVICES).x, null)
})

test('a move in the second pane moves the first, unless windows are apart', () => {
  const shown = stateOfSecond(FIRST, SECOND, DEVICES)
  const moved = afterSecond(FIRST, SECOND, { ...shown, x: [99, 149] }, DEVICES)
  assert.deepEqual(moved.x, [199, 299])
  assert.deepEqual(stateOfSecond(moved, secondOf(moved.options, 3)!, DEVICES).x, [99, 149])
  const apart = { ...SECOND, apart: true }
  const alone = afterSecond(FIRST, apart, { ...shown, x: [5, 6] }, DEVICES)
  assert.deepEqual([alone.x, secondOf(alone.options, 3)!.x], [FIRST.x, [5, 6]])
})

test('a change of what both share reaches the first, and its own moment does not', () => {
  const shown = { ...stateOfSecond(FIRST, SECOND, DEVICES), view: 'table' as const, query: 'attention', at: 12 }
  const after = afterSecond(FIRST, SECOND, shown, DEVICES)
  assert.deepEqual([after.view, after.query, after.at, after.device], ['table', 'attention', 50, 0])
  assert.equal(secondOf(after.options, 3)!.at, 12)
  assert.equal(after.select, 7, 'nothing was opened there')
  assert.equal(afterSecond(FIRST, SECOND, { ...shown, select: 4 }, DEVICES).select, null)
})

test('it opens on the next device, or at another moment of the only one', () => {
  assert.equal(firstSecond({ ...FIRST, device: 2 }, DEVICES).device, 0)
  const [only] = DEVICES
  assert.deepEqual([firstSecond(FIRST, [only]).device, firstSecond(FIRST, [only]).at], [0, 999])
  assert.equal(firstSecond({ ...FIRST, at: 999 }, [only]).at, null)
})
