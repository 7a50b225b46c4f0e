// Ranks and stacks in words, as links: each a place in this report.

import { append, h } from '../ui/dom'
import type { JobData } from './job-data'
import type { JobActions } from './job-state'

type Words = string | Node

export function rankLink(data: JobData, actions: JobActions, row: number, text = data.nameOf(row)): HTMLElement {
  return linkTo(`job.rank=${encodeURIComponent(data.keyOf(row))}`, text, () => actions.pickRow(row))
}

export function stackLink(data: JobData, actions: JobActions, stack: number, text?: string): HTMLElement {
  const { name, frames } = data.manifest.stack_names[stack]
  const link = linkTo(`job.stack=${stack}`, text ?? name, () => actions.pickStack(stack))
  link.classList.add('mono')
  link.title = frames.join('\n')
  return link
}

/** A stack and its category: several stacks may have the same name. */
export function stackWords(data: JobData, actions: JobActions, stack: number): Node[] {
  const category = data.manifest.categories[data.stackCategory[stack]]
  const link = stackLink(data, actions, stack)
  return category ? [link, h('span', { class: 'soft' }, category)] : [link]
}

/** A link that works in this page, and as an address in another tab. */
function linkTo(place: string, text: string, follow: () => void): HTMLElement {
  const link = h('a', { href: `#view=job&${place}` }, text)
  link.addEventListener('click', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    follow()
  })
  return link
}

/** A part of a sentence: plain, between backticks, or a rank by its number. */
export type Part = { kind: 'text' | 'code'; text: string } | { kind: 'rank'; text: string; rank: number }

/** "Rank 37 holds `f a.py:1`." in parts. Code is in backticks, or the name of a line; "ranks 3" or a number after "and" is no rank. */
export function partsOf(sentence: string): Part[] {
  const parts: Part[] = []
  let end = 0
  for (const found of sentence.matchAll(/`([^`]+)`|([\w<>.]+ [\w.+-]+\.py:\d+)|\b[Rr]ank (\d+)\b/g)) {
    if (found.index > end) parts.push({ kind: 'text', text: sentence.slice(end, found.index) })
    const code = found[1] ?? found[2]
    if (code !== undefined) parts.push({ kind: 'code', text: code })
    else parts.push({ kind: 'rank', text: found[0], rank: Number(found[3]) })
    end = found.index + found[0].length
  }
  if (end < sentence.length) parts.push({ kind: 'text', text: sentence.slice(end) })
  return parts
}

/** The largest stack that is named by this place, "train/models.py:30". */
function stackAt(data: JobData, place: string): number | undefined {
  const found = data.manifest.stack_names.findIndex(
    ({ file, line }) => file !== '' && `/${file}:${line}`.endsWith(`/${place}`),
  )
  return found < 0 ? undefined : found
}

/** A sentence whose ranks and stacks are links. */
export function linkedSentence(data: JobData, actions: JobActions, sentence: string): HTMLElement {
  const out = h('span')
  const stacks = new Map(data.manifest.stack_names.map(({ name }, stack) => [name, stack]))
  const words: Words[] = partsOf(sentence).map((part) => {
    if (part.kind === 'rank') {
      const row = data.rowOf(String(part.rank))
      return row === null ? part.text : rankLink(data, actions, row, part.text)
    }
    if (part.kind === 'text') return part.text
    const stack = stacks.get(part.text) ?? stackAt(data, part.text)
    return stack === undefined ? h('code', {}, part.text) : stackLink(data, actions, stack)
  })
  append(out, ...words)
  return out
}
