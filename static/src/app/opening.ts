// While the worker reads the report: colours, styles and fonts for the first frame. Then: which blobs are missing or changed.

import type { Manifest } from '../data/model'
import { reportDamage } from '../ui/damage-note'
import { deviceName } from '../ui/devices'
import { isDark } from '../ui/theme'
import { FONT } from '../views/shared/canvas-view'
import { warmPicture } from '../views/timeline/picture'
import type { DataClient } from '../worker/data-client'

export function warmUp(root: HTMLElement): void {
  warmPicture(isDark('system'))
  getComputedStyle(root).getPropertyValue('--ink')
  const ctx = document.createElement('canvas').getContext('2d')
  if (!ctx) return
  ctx.font = FONT
  ctx.measureText('0')
}

const NAMES: Record<string, string> = {
  views: 'the code of all views but the timeline',
  jobview: 'the code of the job’s view',
  job: 'the ranks of the job',
  stacks: 'the stack traces',
  source: 'the source lines',
  diff: 'the comparison',
}
const OF_DEVICE: Record<string, string> = { times: 'the times' }

/** The page opens first, but the blob it waits for may be the damaged one. */
const PATIENCE_MS = 3000

/** Reads every blob in the worker, one at a time: 5 ms for a megabyte that was not read yet. */
export async function reportDamagedParts(client: DataClient, ready: Promise<void>): Promise<void> {
  await Promise.race([ready.catch(() => {}), new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))])
  const { manifest } = client
  const damaged: string[] = []
  for (const blob of blobsOf(manifest)) if (!(await client.isIntact(blob))) damaged.push(nameOf(manifest, blob))
  if (damaged.length > 0)
    reportDamage(`This file is damaged or incomplete: ${damaged.join(', ')} cannot be read. Everything else is intact.`)
  performance.mark('snapreport:checked')
}

function blobsOf({ sections, job }: Manifest): Set<string> {
  return new Set(['views', ...(job ? ['jobview'] : []), ...Object.values(sections)])
}

function nameOf(manifest: Manifest, blob: string): string {
  const [section, part] = blob.split('.')
  const info = manifest.devices.find((device) => device.section === section)
  if (!info) return NAMES[blob] ?? `the part “${blob}”`
  return `${part ? (OF_DEVICE[part] ?? part) : 'the allocations'} of ${deviceName(manifest, info)}`
}
