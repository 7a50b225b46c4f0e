// What all processes use of the device over events: reserved memory, and what the recorder's samples show beside it.

import type { DeviceData } from '../../data/model'
import { formatBytes } from '../../layout/format'
import { type Figure, shareFigure } from '../shared/figures'

export interface DeviceUse {
  total: number
  /** Bytes by position. `others`: of other processes, null where they are not told apart. */
  used: Float64Array
  others: Float64Array | null
}

/** Null where no samples were recorded. */
export function deviceUseOf({ info, reserved, P }: DeviceData): DeviceUse | null {
  const { device_use: samples } = info.stats
  if (!samples) return null
  const sums = (causes: (cause: string) => boolean): Float64Array => {
    const out = new Float64Array(P)
    // The first sample is taken just after recording begins.
    const first = Math.min(...samples.changes.map(({ event }) => event))
    for (const { event, bytes, cause } of samples.changes)
      if (causes(cause)) out[event === first ? 0 : event + 1] += bytes
    for (let s = 1; s < P; s++) out[s] += out[s - 1]
    return out
  }
  const used = sums(() => true)
  for (let s = 0; s < P; s++) used[s] += reserved[s]
  const others = samples.other_processes_bytes === null ? null : sums((cause) => cause === 'other processes')
  return { total: samples.total_bytes, used, others }
}

export function deviceFigures({ total, used, others }: DeviceUse, reserved: number, position: number): Figure[] {
  const other = others?.[position] ?? 0
  const figure = (name: string, bytes: number, title: string): Figure => shareFigure(name, bytes, total, title)
  return [
    figure('Used on the device', used[position], `By all processes, of ${formatBytes(total)}`),
    figure(
      'Outside the allocator',
      used[position] - reserved - other,
      others ? 'By this process: CUDA context, libraries, graphs' : 'By this process and others',
    ),
    ...(others ? [figure('Other processes', other, 'By other processes')] : []),
  ]
}
