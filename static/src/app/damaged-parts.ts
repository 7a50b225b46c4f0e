// Which blobs of the file are missing or changed. Views say so when they need one; this note says so before that.

import type { Manifest } from '../data/model'
import { deviceName } from '../ui/devices'
import { reportDamage } from '../ui/damage-note'
import type { DataClient } from '../worker/data-client'

const NAMES: Record<string, string> = {
  views: 'the code of all views but the timeline',
  jobview: 'the code of the job’s view',
  job: 'the ranks of the job',
  stacks: 'the stack traces',
  source: 'the source lines',
  diff: 'the comparison',
}
const OF_DEVICE: Record<string, string> = { times: 'the times', tiles: 'the first picture' }

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
