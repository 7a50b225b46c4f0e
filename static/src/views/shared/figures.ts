// The figures above the segments and reserved views, and the doubt that both views show.

import type { DeviceInfo } from '../../data/model'
import { formatBytes } from '../../layout/format'

export interface Figure {
  name: string
  value: string
  title: string
}

/** Where the end of the trace and the final state disagree, in a sentence; null where they agree. */
export function contradictionOf({ stats }: DeviceInfo): string | null {
  const bytes = stats.reconciliation_bytes
  if (!bytes) return null
  return `At its end the trace leaves ${formatBytes(Math.abs(bytes))} ${bytes > 0 ? 'more' : 'less'} allocated than the final state holds: the file contradicts itself.`
}
