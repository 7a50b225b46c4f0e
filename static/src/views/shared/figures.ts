// The figures over a picture of the allocator, and the doubt that segments and reserved share.

import type { DeviceInfo } from '../../data/model'
import { formatBytes } from '../../layout/format'

export interface Figure {
  name: string
  value: string
  title: string
}

/** What the end of the trace and the final state disagree on, in a sentence; null where they agree. */
export function contradictionOf({ stats }: DeviceInfo): string | null {
  const bytes = stats.reconciliation_bytes
  if (!bytes) return null
  return `At its end the trace leaves ${formatBytes(Math.abs(bytes))} ${bytes > 0 ? 'more' : 'less'} allocated than the final state holds: the file contradicts itself.`
}
