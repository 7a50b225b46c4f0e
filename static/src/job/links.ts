// Ranks and stacks in words, as links: each a place in this report.

import type { JobSentence, SentencePart } from '../data/contracts'
import { append, h } from '../ui/dom'
import type { JobData } from './job-data'
import type { JobActions } from './job-state'

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
  return category ? [link, h('span.soft', category)] : [link]
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

/** The largest stack that is named by this line of a file. */
function stackAt(data: JobData, { file, line }: SentencePart): number | undefined {
  const found = data.manifest.stack_names.findIndex((name) => file && name.file === file && name.line === line)
  return found < 0 ? undefined : found
}

/** A sentence whose ranks and places are links. */
export function linkedSentence(data: JobData, actions: JobActions, sentence: JobSentence['text']): HTMLElement {
  const out = h('span')
  append(out, ...sentence.map((part) => (typeof part === 'string' ? part : linkedPart(data, actions, part))))
  return out
}

function linkedPart(data: JobData, actions: JobActions, part: SentencePart): string | Node {
  if (part.kind === 'rank' && part.number !== undefined) {
    const row = data.rowOf(String(part.number))
    return row === null ? part.text : rankLink(data, actions, row, part.text)
  }
  if (part.kind === 'code') return h('code', part.text)
  if (part.kind !== 'place') return part.text
  const stack = stackAt(data, part)
  return stack === undefined ? h('code', part.text) : stackLink(data, actions, stack, part.text)
}
