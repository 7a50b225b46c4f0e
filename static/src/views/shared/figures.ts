// The figures above the segments and reserved views, and the doubt that both views show.

import type { DeviceInfo } from '../../data/model'
import { formatBytes, formatBytesExact } from '../../layout/format'
import { fill, h } from '../../ui/dom'
import { formatShare } from '../../ui/format'

export interface Figure {
  name: string
  value: string
  title: string
}

/** Bytes and their share of `whole`; the title has each byte. */
export function shareFigure(name: string, bytes: number, whole: number, title: string): Figure {
  const value = `${formatBytes(bytes)} (${formatShare(bytes, whole)})`
  return { name, value, title: `${title}: ${formatBytesExact(bytes)}` }
}

export function showFigures(list: HTMLElement, figures: readonly Figure[]): void {
  fill(list, ...figures.map(({ name, value, title }) => h('div', { title }, h('dt', name), h('dd', value))))
}

/** Where the end of the trace and the final state disagree, in a sentence; null where they agree. */
export function contradictionOf({ stats }: DeviceInfo): string | null {
  const bytes = stats.reconciliation_bytes
  if (!bytes) return null
  return `At its end the trace leaves ${formatBytes(Math.abs(bytes))} ${bytes > 0 ? 'more' : 'less'} allocated than the final state holds: the file contradicts itself.`
}
