// What of a device is computed when first read: columns that follow from others, and the times of a large one,
// which neither the event axis nor the first picture needs.

import type { DeviceColumns } from './device'
import type { DeviceData, Times } from './model'

/** The whole device, which is the given object completed. Until setTimes its times are null, and reading them calls `askTimes`. */
export function complete(columns: DeviceColumns, askTimes: () => void): DeviceData {
  const { start, end, P } = columns
  onFirstRead(columns, 'allocEvent', () => start.map((s) => s - 1))
  onFirstRead(columns, 'freeEvent', () => end.map((s) => (s === P ? -1 : s - 1)))
  for (const name of ['timeUs', 'clockUs'] as const) {
    const get = (): null => {
      askTimes()
      return null
    }
    Object.defineProperty(columns, name, { get, enumerable: true, configurable: true })
  }
  return columns as DeviceData
}

/** Sets a device's times; null: the snapshot has none. */
export function setTimes(d: DeviceData, timeUs: Times | null): void {
  const times = { timeUs, clockUs: timeUs && ascending(timeUs) }
  for (const [name, value] of Object.entries(times))
    Object.defineProperty(d, name, { value, enumerable: true, configurable: true })
}

function onFirstRead<K extends 'allocEvent' | 'freeEvent'>(target: object, name: K, make: () => DeviceData[K]): void {
  const get = (): DeviceData[K] => {
    const value = make()
    Object.defineProperty(target, name, { value, enumerable: true })
    return value
  }
  Object.defineProperty(target, name, { get, enumerable: true, configurable: true })
}

/**
 * The times themselves where they never go back, else their running maximum: several threads may stamp their events a
 * few µs out of order, and an axis has to be monotone. The recorded times are still what is shown.
 */
export function ascending(times: Times): Times {
  let sorted = true
  for (let i = 1; i < times.length && sorted; i++) sorted = times[i] >= times[i - 1]
  if (sorted) return times
  const out = times.slice()
  for (let i = 1; i < out.length; i++) if (!(out[i] >= out[i - 1])) out[i] = out[i - 1]
  return out
}
