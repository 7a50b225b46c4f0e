import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  formatAddress,
  formatBytes,
  formatBytesExact,
  formatCount,
  formatDuration,
  formatMoment,
} from '../src/layout/format'
import { axisClock } from '../src/layout/gaps'
import { byteTicks, eventTicks, eventToUs, positionAtUs, timeTicks, usToEvent } from '../src/layout/ticks'
import { clamp, type Limits, pan, zoomWithin } from '../src/layout/viewport'
import type { DeviceData, DeviceInfo } from '../src/data/model'
import { maxByColumn } from '../src/views/reserved/columns'
import type { Scene } from '../src/views/shared/scene'
import type { XWindow } from '../src/views/shared/x-window'
import { describeMark, type Mark } from '../src/views/timeline/marks'
import { info, random } from './trace'

const KI = 1024
const MI = KI * KI
const GI = KI * MI

test('bytes, counts, times and addresses as people read them', () => {
  assert.deepEqual([0, 512, 1023, 1024, 1536, 1023.6 * KI, 63.6 * MI, 25.1 * GI, 123 * GI].map(formatBytes), [
    '0 B',
    '512 B',
    '1023 B',
    '1.00 KiB',
    '1.50 KiB',
    '1.00 MiB',
    '63.6 MiB',
    '25.1 GiB',
    '123 GiB',
  ])
  assert.equal(formatBytes(-1536), '-1.50 KiB')
  assert.equal(formatBytesExact(1342177280), '1.25 GiB (1,342,177,280 B)')
  assert.deepEqual([0, 999, 1000, 1234567, -1234567, 1234.5].map(formatCount), [
    '0',
    '999',
    '1,000',
    '1,234,567',
    '-1,234,567',
    '1,234.5',
  ])
  assert.deepEqual([0, 850, 999.7, 12345, 4.56e6, 59.999e6, 200e6, 3725e6, 7199.9e6].map(formatDuration), [
    '0 µs',
    '850 µs',
    '1 ms',
    '12.3 ms',
    '4.56 s',
    '1 min 00 s',
    '3 min 20 s',
    '1 h 02 min',
    '2 h 00 min',
  ])
  assert.equal(formatMoment(1_740_832_496_789_012), '2025-03-01 12:34:56.789012 UTC')
  assert.equal(formatAddress(0x7f1c, 0x2a000000), '0x7f1c2a000000')
  assert.equal(formatAddress(0xffffffff, 0xfffffe00), '0xfffffffffffffe00')
})

test('a column shows the greatest value that holds anywhere in it', () => {
  const next = random(9)
  const P = 500
  const values = Float64Array.from({ length: P }, () => Math.floor(1000 * next()))
  for (const [x0, x1, count] of [
    [-1, P - 1, 1],
    [-1, P - 1, 7],
    [-1, P - 1, 333],
    [20.25, 61.5, 90],
  ]) {
    const window = { x0, x1, scale: { axis: 'event' } } as unknown as XWindow
    const shown = maxByColumn({ P, clockUs: null } as unknown as DeviceData, window, count, values)
    const width = (x1 - x0) / count
    const expected = Array.from({ length: count }, (_, column) => {
      const [from, to] = [x0 + column * width, x0 + column * width + width]
      // Position p, after p events, holds from event p - 1 to the next.
      return Math.max(...values.filter((_value, p) => p > from && p - 1 < to))
    })
    assert.deepEqual([...shown], expected)
  }
})

test('ticks lie inside, on multiples of one step, and no two say the same', () => {
  const r = random(4)
  for (const make of [byteTicks, eventTicks, timeTicks]) {
    for (let i = 0; i < 3000; i++) {
      const from = Math.floor(r() ** 4 * 1e11)
      const span = 2 + r() ** 6 * 1e11
      const ticks = make(from, from + span, 6)
      assert.ok(ticks.length <= 14, `${make.name} ${from} ${span}: ${ticks.length}`)
      assert.ok(ticks.every(({ value }) => value >= from && value <= from + span))
      assert.equal(new Set(ticks.map(({ label }) => label)).size, ticks.length, JSON.stringify(ticks))
      for (let t = 2; t < ticks.length; t++)
        assert.ok(Math.abs(ticks[t].value - 2 * ticks[t - 1].value + ticks[t - 2].value) < 1e-3)
    }
  }
})

test('byte ticks are binary and stay short at any zoom', () => {
  assert.deepEqual(
    byteTicks(0, 4 * GI, 4).map((t) => t.label),
    ['0', '1 GiB', '2 GiB', '3 GiB', '4 GiB'],
  )
  assert.deepEqual(
    byteTicks(0, GI, 4).map((t) => t.label),
    ['0', '0.25 GiB', '0.5 GiB', '0.75 GiB', '1 GiB'],
  )
  assert.deepEqual(
    byteTicks(3.25 * GI, 3.5 * GI, 2).map((t) => t.label),
    ['3,328 MiB', '3,456 MiB', '3,584 MiB'],
  )
  assert.deepEqual(
    byteTicks(0, 100, 4).map((t) => t.label),
    ['0', '32 B', '64 B', '96 B'],
  )
})

test('time ticks follow the clock', () => {
  assert.deepEqual(
    timeTicks(0, 2e6, 4).map((t) => t.label),
    ['0 s', '+500 ms', '+1.0 s', '+1.5 s', '+2.0 s'],
  )
  assert.deepEqual(
    timeTicks(0, 90e6, 3).map((t) => t.label),
    ['0 s', '+30 s', '+1:00 min', '+1:30 min'],
  )
  assert.deepEqual(
    timeTicks(3600e6, 3660e6, 2).map((t) => t.label),
    ['+1:00:00 h', '+1:00:30 h', '+1:01:00 h'],
  )
  assert.deepEqual(
    timeTicks(60e6, 60.5e6, 2).map((t) => t.label),
    ['+1:00.0 min', '+1:00.5 min'],
  )
})

const limits: Limits = { bounds: { x0: -1, x1: 1000, y0: 0, y1: 5e10 }, minXSpan: 1, minYSpan: 16 }

test('whatever is done to a view, it stays inside, and the point under the cursor stays put while zooming', () => {
  const r = random(6)
  let view = limits.bounds
  for (let i = 0; i < 5000; i++) {
    const x = view.x0 + r() * (view.x1 - view.x0)
    const y = view.y0 + r() * (view.y1 - view.y0)
    const before = view
    const factor = () => 2 ** (6 * r() - 3.2)
    if (r() < 0.5) view = clamp(pan(view, (r() - 0.5) * 2000, (r() - 0.5) * 1e11), limits)
    else {
      view = zoomWithin(view, limits, x, y, factor(), factor())
      if (view.x0 > limits.bounds.x0 && view.x1 < limits.bounds.x1) {
        const share = (x - before.x0) / (before.x1 - before.x0)
        assert.ok(Math.abs(view.x0 + share * (view.x1 - view.x0) - x) < 1e-6)
      }
    }
    const { bounds } = limits
    const slack = 1e-9 * 5e10
    assert.ok(
      view.x0 >= bounds.x0 - 1e-9 &&
        view.x1 <= bounds.x1 + 1e-9 &&
        view.y0 >= bounds.y0 &&
        view.y1 <= bounds.y1 + slack,
    )
    assert.ok(view.x1 - view.x0 >= 1 - 1e-9 && view.y1 - view.y0 >= 16 - 1e-4)
  }
})

test('a window too narrow grows around its middle; one too wide becomes all', () => {
  assert.deepEqual(clamp({ x0: 10.4, x1: 10.5, y0: 0, y1: 5e10 }, limits), { x0: 9.95, x1: 10.95, y0: 0, y1: 5e10 })
  assert.deepEqual(clamp({ x0: -50, x1: 5000, y0: -1, y1: 1e12 }, limits), limits.bounds)
})

test('events and times map to and fro, also where several events share a µs', () => {
  const clock = Float64Array.of(0, 10, 10, 10, 50)
  assert.deepEqual(
    [-1, 0, 0.5, 3, 3.5, 4, 5].map((x) => eventToUs(clock, x)),
    [-1, 0, 5, 10, 30, 50, 51],
  )
  assert.deepEqual(
    [-1, 0, 5, 10, 30, 50, 51].map((us) => usToEvent(clock, us)),
    [-1, 0, 0.5, 3, 3.5, 4, 5],
  )
  assert.deepEqual(
    [-1, 0, 9, 10, 49, 50, 60].map((us) => positionAtUs(clock, us)),
    [0, 1, 1, 4, 4, 5, 5],
  )
  assert.equal(eventToUs(new Float64Array(0), 3), 3)
  const r = random(8)
  let t = 0
  const steady = Float64Array.from({ length: 500 }, (_, i) => (i ? (t += 1 + Math.floor(r() * 1000)) : 0))
  for (let i = 0; i < 500; i++) {
    const x = -1 + r() * 502
    assert.ok(Math.abs(usToEvent(steady, eventToUs(steady, x)) - x) < 1e-9)
  }
})

test('idle stretches are shortened, everything else keeps its length, and ticks say the true time', () => {
  // 1,000 events 10 µs apart, an hour, 1,000 events, a second, 1,000 events.
  const pauses = new Map([
    [1000, 3600e6],
    [2000, 1e6],
  ])
  let t = 0
  const clock = Float64Array.from({ length: 3000 }, (_, i) => (t += i === 0 ? 0 : (pauses.get(i) ?? 10)))
  const { us, gaps } = axisClock(clock)
  // The second is nothing beside the hour.
  assert.deepEqual(
    gaps.map(({ from, to }) => [from, to]),
    [[clock[999], clock[1000]]],
  )
  for (let i = 1; i < 3000; i++) if (i !== 1000) assert.equal(us[i] - us[i - 1], clock[i] - clock[i - 1])
  const [{ x0, x1 }] = gaps
  assert.deepEqual([x0, x1], [us[999], us[1000]])
  assert.ok(x1 - x0 < 0.05 * us[2999])
  const ticks = timeTicks(us[1000], us[2999], 4, gaps)
  assert.ok(ticks.length >= 2 && ticks.every(({ label }) => label.startsWith('+1:00:0')))
  for (const { value } of ticks) assert.equal((value - us[1000] + clock[1000]) % 250e3, 0)
  assert.ok(timeTicks(us[0], us[2999], 20, gaps).every(({ value }) => value <= x0 || value >= x1))
  const steady = Float64Array.from({ length: 30 }, (_, i) => 1000 * i)
  assert.deepEqual(axisClock(steady), { us: steady, gaps: [] })
  assert.deepEqual(axisClock(new Float64Array(0)).gaps, [])
})

test('the mark of a peak says where PyTorch counted a higher one, before what is left of the trace', () => {
  const mark: Mark = { kind: 'peak', event: 9, bytes: 2 ** 20, free: NaN }
  const said = (counted: Partial<DeviceInfo>): string[] => {
    const device = info({ events: 20, peak_bytes: 2 ** 20, ...counted })
    return describeMark({ data: null, stacks: null, info: device } as unknown as Scene, mark).map((line) =>
      'text' in line ? line.text : '',
    )
  }
  assert.deepEqual(said({ counted_bytes: 2 ** 22 })[0], 'Peak: 1.00 MiB allocated at event 9')
  assert.match(said({ counted_bytes: 2 ** 22 })[1], /max_memory_allocated\(\) would report 4.00 MiB/)
  assert.deepEqual(said({ lost_peak_bytes: 3 * 2 ** 20 }), [
    'Peak of the trace: 1.00 MiB allocated at event 9',
    'PyTorch counted 3.00 MiB before the first event',
  ])
})
