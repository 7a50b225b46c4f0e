// Names of devices, and which views there are for them.

import { commonStart, without } from '../data/common-start'
import type { DeviceInfo, Manifest } from '../data/model'
import { formatCount } from '../layout/format'
import type { DataClient } from '../worker/data-client'
import { plural } from './format'
import { VIEWS, type ViewName } from './state'

/** The views of a report, in the order of their tabs: a job of which it holds no rank whole has no view of a device. */
export function viewsOf({ manifest, devices }: DataClient): readonly ViewName[] {
  return VIEWS.filter((view) => {
    if (view === 'job') return manifest.job !== null
    if (view === 'diff') return manifest.diff !== null
    if (view === 'xray') return devices.some(({ modules }) => modules.length > 1)
    return view === 'summary' || devices.length > 0 || manifest.job === null
  })
}

export function hasData(info: DeviceInfo): boolean {
  return info.events > 0 || info.allocations > 0 || info.stats.segments > 0
}

/** The device that the headline is about; else the first with a timeline, else the first with anything, else the first. */
export function firstDevice({ manifest, devices }: DataClient): number {
  const found =
    (manifest.opening && devices[manifest.opening.device]) ??
    devices.find((info) => info.events > 0 && info.allocations > 0) ??
    devices.find((info) => info.allocations > 0) ??
    devices.find(hasData) ??
    devices[0]
  return found?.index ?? 0
}

/** The out-of-memory event that the headline is about; null where nothing failed. */
export function openingFailure({ manifest, devices }: DataClient): { device: number; event: number } | null {
  const { opening } = manifest
  return opening && devices[opening.device]?.ooms.some(({ event }) => event === opening.event) ? opening : null
}

/** "cuda:0"; with the file's name where the report holds several. */
export function deviceName(manifest: Manifest, info: DeviceInfo): string {
  const names: Record<string, string> = { host: 'host (pinned)', cpu: 'cpu' }
  const name = names[info.kind] ?? `${info.kind}:${info.device}`
  const file = manifest.snapshots[info.snapshot]?.file
  return manifest.snapshots.length > 1 && file ? `${file} · ${name}` : name
}

/** The same for menus and panes: without what the names of the files begin with, which the title says. */
export function deviceLabel(manifest: Manifest, info: DeviceInfo): string {
  return without(deviceName(manifest, info), commonStart(manifest.snapshots.map(({ file }) => file)))
}

export function deviceSummary(info: DeviceInfo): string {
  const ooms = info.stats.oom_events.length
  const failed = ooms ? `, ${ooms} OOM` : ''
  if (info.events > 0) return `${plural(info.events, 'event')}${failed}`
  return info.allocations > 0 ? 'final state only' : 'no events'
}

/** Why a view of segments is empty for a profiler's trace. */
export const NO_SEGMENTS =
  'This is a torch.profiler trace: it records allocations and frees, not the segments that they are cut from. A memory snapshot (snapreport record, with CUDA) has them.'

/** Why a timeline is empty or short, in a sentence; null when it needs no explanation. */
export function explain(info: DeviceInfo): string | null {
  if (info.events === 0 && info.allocations > 0) return 'Recorded without history: only the final state is known.'
  if (info.events === 0 && info.stats.segments > 0)
    return 'Recorded without history, and no block was in use: there is nothing to draw.'
  if (info.events === 0) return 'Nothing was recorded for this device: no events and no segments.'
  if (info.allocations === 0)
    return `None of the ${formatCount(info.events)} events allocates or frees a block: there is nothing to stack.`
  return null
}
