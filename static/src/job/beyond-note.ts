// What a chart says of values that lie beyond its scale.

import { formatBytes } from '../layout/format'
import { h } from '../ui/dom'

/** "Bars end at 20.0 GiB: Rank 5 goes on to 78.1 GiB."; null where none lies beyond. */
export function beyondNote(
  what: string,
  values: ArrayLike<number>,
  end: number,
  nameOf: (index: number) => string,
): HTMLElement | null {
  const text = beyondWords(what, values, end, nameOf)
  return text === null ? null : h('p', { class: 'job-beyond soft' }, text)
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
  const most = `${nameOf(beyond[0].index)} goes on to ${formatBytes(Math.round(beyond[0].value))}`
  const more = beyond.length > 1 ? `, ${beyond.length - 1} more lie${beyond.length > 2 ? '' : 's'} beyond` : ''
  return `${what} end at ${formatBytes(Math.round(end))}: ${most}${more}.`
}
