// An out-of-memory event in a sentence, the same wherever it is named.

import type { OomEvent } from '../../data/model'
import { formatBytes } from '../../layout/format'

/** "Out of memory: 4.94 GiB requested (4.96 GiB segment), 91.3 MiB free on the device, 1.02 GiB cached and usable, …" */
export function describeOom({ requested, figures }: OomEvent): string {
  const words = `Out of memory: ${formatBytes(requested)} requested`
  if (!figures) return words
  const { segment, deviceFree, usable, largestUsable, shortfall } = figures
  const parts = [
    segment !== null && segment !== requested ? `${words} (${formatBytes(segment)} segment)` : words,
    deviceFree === null ? null : `${formatBytes(deviceFree)} free on the device`,
    usable > 0
      ? `${formatBytes(usable)} cached and usable, largest block ${formatBytes(largestUsable)}`
      : 'nothing cached and usable',
    shortfall > 0 ? `${formatBytes(shortfall)} short in total` : null,
  ]
  return parts.filter((part) => part !== null).join(', ')
}
