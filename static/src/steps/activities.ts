// What a profiler's trace of the run shows, on the clock of a device's events: what memory costs in time, the outermost
// operators of each thread, the kernels and copies of each stream (written by snapreport/report/activity_columns.py).

import type { DecodedBlob } from '../data/columns'
import type { DeviceInfo, Times } from '../data/model'
import { usToEvent } from '../layout/ticks'
import { nothing, type Track, type TrackKind } from './spans'

/** Units of the stored times in a µs. */
const TICKS = 10

const TITLES: Record<'cost' | 'operator' | 'kernel', string> = {
  cost: 'What memory costs in time',
  operator: 'Operators of a thread',
  kernel: 'Kernels and copies of a stream',
}

/** Rows without spans, for the room that the activities will take; none where the report has no trace. */
export function activityRows(info: DeviceInfo): Track[] {
  return (info.activities?.rows ?? []).map((kind) => nothing(kind, TITLES[kind]))
}

/** `columns`: of the section `activities`; `clockUs`: of the device's events. */
export function readActivities(info: DeviceInfo, columns: DecodedBlob, clockUs: Times): Track[] {
  const name = (column: string): string => `${info.section}.activity.${column}`
  const [begin, length] = [columns.f64(name('begin')), columns.f64(name('length'))]
  const [names, label] = [columns.json<string[]>(name('names')), columns.u32(name('name'))]
  const [count, row] = [columns.u32(name('count')), columns.u8(name('row'))]
  const tracks: Track[] = []
  const rows: TrackKind[] = info.activities?.rows ?? []
  for (let at = 0, end = 0; at < row.length; at = end) {
    while (end < row.length && row[end] === row[at]) end++
    const startUs = begin.slice(at, end).map((ticks) => ticks / TICKS)
    const endUs = startUs.map((start, i) => start + length[at + i] / TICKS)
    const place = (us: number): number => clampTo(usToEvent(clockUs, us), clockUs.length - 1)
    const places = { from: startUs.map(place), to: endUs.map(place) }
    const kind = rows[row[at]]
    tracks.push({
      kind,
      title: TITLES[kind as keyof typeof TITLES],
      names,
      name: label.subarray(at, end),
      first: Int32Array.from(places.from, Math.ceil),
      last: Int32Array.from(places.to, Math.floor),
      ragged: null,
      startUs,
      endUs,
      places,
      counts: count.subarray(at, end),
    })
  }
  return tracks
}

function clampTo(event: number, last: number): number {
  return Math.max(0, Math.min(last, event))
}
