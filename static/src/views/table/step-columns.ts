// The effect of a step on the whole device: its peak, and the bytes it left allocated.

import type { DeviceData, DeviceInfo } from '../../data/model'
import { stepsOf } from '../../steps/steps'
import { bytes, type Column, counts, type Field, field, plain } from './columns'

export interface StepNumbers {
  /** By group: the most that was allocated in it; NaN outside all steps. */
  peak: Float64Array
  /** Allocated after it less allocated before it. */
  growth: Float64Array
  events: Float64Array
}

/** Group 0 is everything outside all steps. O(events). */
export function stepNumbers(info: DeviceInfo, data: DeviceData): StepNumbers | null {
  const steps = stepsOf(info, data)
  if (!steps) return null
  const { first, last } = steps
  const make = (): Float64Array => new Float64Array(first.length + 1).fill(NaN)
  const numbers: StepNumbers = { peak: make(), growth: make(), events: make() }
  for (let step = 0; step < first.length; step++) {
    // Position s is the state after event s - 1: a step of events a … b starts at position a and ends at b + 1.
    const before = first[step]
    const after = last[step] + 1
    let most = 0
    for (let s = before + 1; s <= after; s++) if (data.allocated[s] > most) most = data.allocated[s]
    numbers.peak[step + 1] = after > before ? most : NaN
    numbers.growth[step + 1] = data.allocated[after] - data.allocated[before]
    numbers.events[step + 1] = after - before
  }
  return numbers
}

export function stepColumns({ peak, growth, events }: StepNumbers): Column[] {
  return [
    bytes(
      {
        name: 'steppeak',
        title: 'Step peak',
        hint: 'The most that was allocated on the device within the step',
        level: 1,
      },
      (g) => peak[g],
    ),
    bytes(
      {
        name: 'growth',
        title: 'Growth',
        hint: 'Allocated after the step less allocated before it',
        level: 1,
        tip: null,
      },
      (g) => growth[g],
    ),
    counts({ name: 'events', title: 'Events', hint: 'Events of the step', level: 3, width: 84 }, (g) => events[g]),
  ]
}

export function stepFields({ peak, growth, events }: StepNumbers): Field[] {
  return [
    field('step_peak_bytes', (g) => plain(peak[g])),
    field('step_growth_bytes', (g) => plain(growth[g])),
    field('step_events', (g) => plain(events[g])),
  ]
}
