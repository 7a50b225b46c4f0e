// Everything known of the selected allocation, its whole stacks, and what else its code allocated.

import type { DeviceData, Stacks } from '../data/model'
import type { SourceLines } from '../data/source'
import { formatBytes, formatBytesExact, formatCount } from '../layout/format'
import type { Scene } from '../views/shared/scene'
import { siblingsOf } from './details-facts'
import { allocationLink, type Links, rowsOf } from './details-rows'
import { copyButton, fill, h } from '../ui/dom'
import { formatShare, plural } from '../ui/format'
import { stackList, stackText } from '../ui/stack-list'
import type { Store } from '../ui/state'

const SIBLINGS_SHOWN = 8

export class DetailsPanel {
  readonly element = h('aside', { class: 'details', 'aria-label': 'Selected allocation', tabindex: 0, hidden: true })
  private readonly store: Store
  private readonly links: Links
  private readonly address: () => string
  private readonly askSource: () => Promise<SourceLines | null>
  private source: SourceLines | null = null
  private asked = false
  private shown = ''
  /** What was shown last, to show it again when the source has come. */
  private last: [Scene | null, string | null] = [null, null]

  /** onShow brings an event into view; address gives the link to what is on screen; source reads the lines that the report holds. */
  constructor(
    store: Store,
    onShow: (event: number) => void,
    address: () => string,
    source: () => Promise<SourceLines | null>,
  ) {
    this.store = store
    this.links = { showEvent: onShow, select: (id) => store.set({ select: id }) }
    this.address = address
    this.askSource = source
  }

  render(scene: Scene | null, swatch: string | null): void {
    const { select, noise, device } = this.store.state
    const data = scene?.data
    const stacks = scene?.stacks
    const open = select !== null
    this.element.hidden = !open
    this.last = [scene, swatch]
    // Times of a large device come later than the rest, and only once somebody looks.
    const timed = open && Boolean(data?.timeUs)
    const key = `${device}/${select}/${noise}/${swatch}/${Boolean(data)}/${timed}/${this.source !== null}`
    if (!open || key === this.shown) {
      if (!open) this.shown = ''
      return
    }
    this.shown = key
    this.readSource()
    if (!scene || !data || !stacks)
      fill(this.element, this.head('Allocation', null), h('p', { class: 'soft' }, 'Reading …'))
    else if (select >= data.N) {
      fill(
        this.element,
        this.head('No such allocation', null),
        h('p', { class: 'soft' }, `This device has ${formatCount(data.N)} allocations; there is no number ${select}.`),
      )
    } else this.fillFor(scene, data, stacks, select, swatch)
  }

  /** Once, when the panel first opens: most reports hold none. */
  private readSource(): void {
    if (this.asked) return
    this.asked = true
    this.askSource().then(
      (source) => {
        this.source = source
        if (source) this.render(...this.last)
      },
      () => {},
    ) // without it the stacks are shown as ever
  }

  private fillFor(scene: Scene, data: DeviceData, stacks: Stacks, id: number, swatch: string | null): void {
    const list = h('dl')
    for (const [label, value] of rowsOf(scene, data, id, this.links)) {
      if (value === null || value === '') continue
      list.append(h('dt', {}, label), h('dd', {}, value))
    }
    const parts: Node[] = [this.head(formatBytesExact(data.size[id]), swatch), list]
    const traced = data.start[id] > 0
    const freeOnly = !traced && data.end[id] < data.P
    parts.push(...this.stackPart(stacks, data.stack[id], freeOnly ? 'Stack of its free' : 'Stack'))
    const freeStack = data.freeStack[id]
    if (!freeOnly && freeStack > 0) {
      if (freeStack !== data.stack[id]) parts.push(...this.stackPart(stacks, freeStack, 'Freed at'))
      else parts.push(h('p', { class: 'soft' }, 'It was freed with the same stack.'))
    }
    parts.push(...this.siblingPart(scene, data, id))
    fill(this.element, ...parts)
    this.element.scrollTop = 0
  }

  private head(title: string, swatch: string | null): HTMLElement {
    const mark = swatch ? h('span', { class: 'swatch' }) : null
    if (mark) mark.style.background = swatch!
    return h(
      'header',
      {},
      h('h2', {}, mark, title),
      h(
        'div',
        { class: 'head-tools' },
        copyButton('Copy link', this.address, 'Copy a link to this view with this allocation selected'),
        h(
          'button',
          {
            type: 'button',
            class: 'close',
            'aria-label': 'Close details (Escape)',
            title: 'Close (Escape)',
            onclick: () => this.store.set({ select: null }),
          },
          '✕',
        ),
      ),
    )
  }

  private stackPart(stacks: Stacks, stack: number, title: string): Node[] {
    const frames = stacks.frames(stack)
    const { noise } = this.store.state
    const noisy = frames.filter((frame) => frame.noise).length
    const toggle =
      noisy === 0
        ? null
        : h(
            'label',
            { class: 'switch', title: 'Frames of the interpreter loop, the dispatcher and the unwinder (N)' },
            checkbox(noise, (on) => this.store.set({ noise: on })),
            `${formatCount(noisy)} runtime`,
          )
    return [
      h(
        'div',
        { class: 'stack-head' },
        h('h3', {}, `${title} (${formatCount(frames.length)})`),
        toggle,
        frames.length
          ? copyButton('Copy', () => stackText(frames, this.store.state.noise), 'Copy the stack as text')
          : null,
      ),
      stackList(frames, noise, () => this.store.set({ noise: true }), this.source),
    ]
  }

  /** What the same stack allocated: those without a stack have nothing in common. */
  private siblingPart(scene: Scene, data: DeviceData, id: number): Node[] {
    if (data.stack[id] === 0) return []
    const { count, bytes, liveAtPeak, bytesAtPeak, largest } = siblingsOf(data, id, SIBLINGS_SHOWN)
    const { peakBytes } = data.info
    const parts: Node[] = [
      h('div', { class: 'stack-head' }, h('h3', {}, 'From the same stack')),
      h(
        'p',
        { class: 'siblings' },
        `${plural(count, 'allocation')}, ${formatBytes(bytes)} in all. At the peak `,
        liveAtPeak
          ? `${formatCount(liveAtPeak)} live with ${formatBytes(bytesAtPeak)}, ${formatShare(bytesAtPeak, peakBytes)} of it.`
          : 'none of them lives.',
      ),
    ]
    if (largest.length === 0) return parts
    const list = h('ol', { class: 'sibling-list' })
    for (const other of largest) list.append(h('li', {}, allocationLink(scene, other, this.links)))
    const rest = count - 1 - largest.length
    parts.push(
      h(
        'p',
        { class: 'soft' },
        rest > 0 ? `The largest of the others (${formatCount(rest)} more):` : 'The others, largest first:',
      ),
      list,
    )
    return parts
  }
}

function checkbox(on: boolean, onChange: (on: boolean) => void): HTMLInputElement {
  const box = h('input', { type: 'checkbox', checked: on })
  box.addEventListener('change', () => onChange(box.checked))
  return box
}
