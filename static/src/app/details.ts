// The panel beside the picture: everything about the selected allocation, an out-of-memory event, a stack, or a range.

import type { DeviceData, Stacks } from '../data/model'
import type { SourceLines } from '../data/source-links'
import { formatBytes, formatBytesExact, formatCount } from '../layout/format'
import type { Matches } from '../search/matches'
import { swatch } from '../ui/controls'
import { copyButton, fill, h } from '../ui/dom'
import { RANGE, type Store } from '../ui/state'
import { nameOfStack } from '../views/shared/describe'
import { readEventRange } from '../views/shared/range-sums'
import type { Scene } from '../views/shared/scene'
import { oomDetails, oomTitle } from './details-oom'
import { rangeDetails, rangeTitle } from './details-range'
import { factsList, type Links, rowsOf } from './details-rows'
import { allocationsPart, type DetailsParts, stackDetails, stackPart } from './details-stack'
import { HAS_LINKS } from './hash'
import { focusPicture } from './messages'

interface Content {
  title: string
  label: string
  swatch: string | null
  parts: readonly Node[]
}

export class DetailsPanel {
  readonly element = h('aside.details', { 'aria-label': 'Details', tabindex: 0, hidden: true })
  private readonly links: Links
  private readonly readLines: () => Promise<SourceLines | null>
  private source: SourceLines | null = null
  private isReadingSource = false
  private shown = ''
  private kind = ''
  /** What was shown last, to show it again when the source lines have arrived. */
  private last: Parameters<DetailsPanel['render']> = [null, null, () => null]

  /** onShow brings an event into view; address gives the link to what is on screen; source reads the lines that the report holds. */
  constructor(
    private readonly store: Store,
    onShow: (event: number) => void,
    private readonly address: () => string,
    source: () => Promise<SourceLines | null>,
  ) {
    this.links = { showEvent: onShow, select: (id) => store.set({ select: id }) }
    this.readLines = source
  }

  /** `swatch`: the colour of the selected allocation; `matches`: of the query, computed when a stack is shown. */
  render(scene: Scene | null, swatch: string | null, matches: () => Matches | null): void {
    const { select, oom, stack, noise, device, at, query, options, view } = this.store.state
    const range = view === 'timeline' ? options[RANGE] : undefined
    const kind = select !== null ? 'allocation' : oom !== null ? 'oom' : stack !== null ? 'stack' : range ? 'range' : ''
    const hadFocus = this.element.contains(document.activeElement)
    this.element.hidden = kind === ''
    this.last = [scene, swatch, matches]
    if (kind === '') {
      this.shown = ''
      if (hadFocus) focusPicture()
      return
    }
    const data = scene?.data
    // Times of a large device are read later than the rest, and only on demand.
    const timed = Boolean(data?.timeUs)
    const key = [device, select, oom, stack, noise, swatch, Boolean(data), timed, this.source !== null, at]
    const isOfQuery = kind === 'stack' || kind === 'range'
    const shown = [...key, isOfQuery && query, kind === 'range' && range].join('/')
    if (shown === this.shown) return
    // Newly opened details start at the top; details that are shown again keep their scroll position.
    const isOther = `${device}/${kind}/${select}/${oom}/${stack}` !== this.kind
    this.kind = `${device}/${kind}/${select}/${oom}/${stack}`
    const top = isOther ? 0 : this.element.scrollTop
    this.shown = shown
    this.readSource()
    const { title, label, swatch: mark, parts } = this.content(kind, ...this.last)
    this.element.setAttribute('aria-label', label)
    fill(this.element, this.head(title, mark), ...parts)
    this.element.scrollTop = top
    // The link that was followed is gone.
    if (hadFocus) this.focus()
  }

  /** For a reader who followed a link that opened it. False when it is not open. */
  focus(): boolean {
    const isOpen = !this.element.hidden
    if (isOpen) this.element.focus({ preventScroll: true })
    return isOpen
  }

  /** Once, when the panel first opens: most reports hold none. */
  private readSource(): void {
    if (this.isReadingSource) return
    this.isReadingSource = true
    this.readLines().then(
      (source) => {
        this.source = source
        if (source) this.render(...this.last)
      },
      () => {},
    ) // without it the stacks are shown without source lines
  }

  private content(kind: string, scene: Scene | null, swatch: string | null, matches: () => Matches | null): Content {
    const { select, oom, stack } = this.store.state
    const words = (title: string, text: string): Content => ({
      title,
      label: 'Details',
      swatch: null,
      parts: [h('p.soft', text)],
    })
    const data = scene?.data
    const stacks = scene?.stacks
    if (!scene || !data || !stacks) return words('Details', 'Reading …')
    const parts: DetailsParts = { store: this.store, links: this.links, source: this.source }
    if (kind === 'oom') {
      const failure = scene.info.ooms.find(({ event }) => event === oom)
      if (!failure) return words('No such event', `Event ${formatCount(oom!)} is no out-of-memory error.`)
      return {
        title: oomTitle(failure),
        label: 'Out-of-memory error',
        swatch: null,
        parts: oomDetails(parts, scene, data, stacks, failure),
      }
    }
    if (kind === 'stack') {
      if (stack! >= stacks.count)
        return words('No such stack', `This report has ${formatCount(stacks.count)} stacks: #${stack} does not exist.`)
      return {
        title: stacks.top(stack!) ? nameOfStack(stacks, stack!) : 'No stack trace recorded',
        label: 'Stack trace',
        swatch: null,
        parts: stackDetails(parts, scene, data, stacks, matches()),
      }
    }
    if (kind === 'range') {
      const range = readEventRange(this.store.state.options[RANGE], scene.info)
      if (!range) return words('No such range', 'This device has no events.')
      return {
        title: rangeTitle(range),
        label: 'Selected range',
        swatch: null,
        parts: rangeDetails(this.store, data, stacks, range, matches()),
      }
    }
    if (select! >= data.N)
      return words(
        'No such allocation',
        `This device has ${formatCount(data.N)} allocations: #${select} does not exist.`,
      )
    return {
      title: formatBytesExact(data.size[select!]),
      label: 'Selected allocation',
      swatch,
      parts: allocationDetails(parts, scene, data, stacks, select!),
    }
  }

  private head(title: string, colour: string | null): HTMLElement {
    const { state } = this.store
    return h(
      'header.row.wrap',
      h('h2', colour && swatch(colour), title),
      h(
        'div.row',
        HAS_LINKS && copyButton('Copy link', this.address, 'Copy a link to this view with these details open'),
        h(
          'button.close',
          { 'aria-label': 'Close details (Escape)', title: 'Close (Escape)', onclick: () => this.store.close() },
          '✕',
        ),
      ),
      state.stack !== null && this.backToOom(),
    )
  }

  /** From a stack back to the failure at whose moment it was opened. */
  private backToOom(): HTMLElement | null {
    const { at, device } = this.store.state
    const failure = this.last[0]?.info.index === device && this.last[0].info.ooms.find(({ event }) => event === at)
    if (!failure) return null
    return h(
      'button.link.back',
      { onclick: () => this.store.set({ oom: failure.event }) },
      `‹ Out of memory: ${formatBytes(failure.requested)} requested`,
    )
  }
}

/** The stack first: it is what readers look for. */
function allocationDetails(parts: DetailsParts, scene: Scene, data: DeviceData, stacks: Stacks, id: number): Node[] {
  const isFreeOnly = data.start[id] === 0 && data.end[id] < data.P
  const freeStack = data.freeStack[id]
  const freed: Node[] = []
  if (!isFreeOnly && freeStack > 0) {
    if (freeStack !== data.stack[id]) freed.push(...stackPart(parts, stacks, freeStack, 'Freed at'))
    else freed.push(h('p.soft', 'It was freed with the same stack.'))
  }
  return [
    ...stackPart(parts, stacks, data.stack[id], isFreeOnly ? 'Stack trace of its free' : 'Stack trace'),
    factsList(rowsOf(scene, data, id, parts.links)),
    ...freed,
    // Those without a stack have nothing in common.
    ...(data.stack[id] === 0 ? [] : allocationsPart(parts, scene, data, data.stack[id], id)),
  ]
}
