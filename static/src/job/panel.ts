// The interface of a panel beside the map.

import { formatBytes, formatCount } from '../layout/format'
import { h } from '../ui/dom'
import type { JobModel } from './job-model'

export interface Panel {
  readonly element: HTMLElement
  /** Called when it is on screen and anything has changed. */
  render(model: JobModel): void
  /** Handles a key before the page does; true when used. */
  key?(event: KeyboardEvent): boolean
  debug?(): unknown
}

/** "Bars end at 20.0 GiB; beyond: Rank 5 (78.1 GiB)."; null where none lies beyond. */
export function beyondNote(
  what: string,
  values: ArrayLike<number>,
  end: number,
  nameOf: (index: number) => string,
): HTMLElement | null {
  const text = beyondWords(what, values, end, nameOf)
  return text === null ? null : h('p.job-beyond.soft', text)
}

export function beyondWords(
  what: string,
  values: ArrayLike<number>,
  end: number,
  nameOf: (index: number) => string,
): string | null {
  const beyond = Array.from(values, (value, index) => ({ value, index })).filter(({ value }) => value > end)
  if (beyond.length === 0) return null
  beyond.sort((a, b) => b.value - a.value)
  const most = `${nameOf(beyond[0].index)} (${formatBytes(Math.round(beyond[0].value))})`
  const more = beyond.length > 1 ? ` and ${formatCount(beyond.length - 1)} more` : ''
  return `${what} end at ${formatBytes(Math.round(end))}; beyond: ${most}${more}.`
}
