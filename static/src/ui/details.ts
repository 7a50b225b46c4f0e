// Everything known of the selected allocation, and its whole stacks.

import type { DeviceData, Stacks } from '../data/model'
import { formatAddress, formatBytesExact, formatCount } from '../layout/format'
import { offsetOf } from '../layout/pick'
import { describeMoment, describeSpan } from '../views/timeline/describe'
import type { Scene } from '../views/timeline/scene'
import { copyButton, fill, h } from './dom'
import { formatShare } from './format'
import { stackList, stackText } from './stack-list'
import type { Store } from './state'

type Row = [label: string, value: Node | string | null]

export class DetailsPanel {
  readonly element = h('aside', { class: 'details', 'aria-label': 'Selected allocation', tabindex: 0, hidden: true })
  private readonly store: Store
  private readonly onShow: (event: number) => void
  private shown = ''

  /** onShow: brings an event into view. */
  constructor(store: Store, onShow: (event: number) => void) {
    this.store = store
    this.onShow = onShow
  }

  render(scene: Scene | null, swatch: string | null): void {
    const { select, noise, device } = this.store.state
    const data = scene?.data
    const stacks = scene?.stacks
    const open = select !== null
    this.element.hidden = !open
    const key = `${device}/${select}/${noise}/${swatch}/${Boolean(data)}`
    if (!open || key === this.shown) {
      if (!open) this.shown = ''
      return
    }
    this.shown = key
    if (!scene || !data || !stacks) fill(this.element, this.head('Allocation', null), h('p', { class: 'soft' }, 'Reading …'))
    else if (select >= data.N) {
      fill(this.element, this.head('No such allocation', null),
        h('p', { class: 'soft' }, `This device has ${formatCount(data.N)} allocations; there is no number ${select}.`))
    } else this.fillFor(scene, data, stacks, select, swatch)
  }

  private fillFor(scene: Scene, data: DeviceData, stacks: Stacks, id: number, swatch: string | null): void {
    const list = h('dl')
    for (const [label, value] of rowsOf(scene, data, id, this.onShow)) {
      if (value === null || value === '') continue
      list.append(h('dt', {}, label), h('dd', {}, value))
    }
    const parts: Node[] = [this.head(formatBytesExact(data.size[id]), swatch), list]
    const traced = data.allocEvent[id] >= 0
    const freeOnly = !traced && data.freeEvent[id] >= 0
    parts.push(...this.stackPart(stacks, data.stack[id], freeOnly ? 'Stack of its free' : 'Stack'))
    const freeStack = data.freeStack[id]
    if (!freeOnly && freeStack > 0 && freeStack !== data.stack[id]) parts.push(...this.stackPart(stacks, freeStack, 'Freed at'))
    fill(this.element, ...parts)
    this.element.scrollTop = 0
  }

  private head(title: string, swatch: string | null): HTMLElement {
    const mark = swatch ? h('span', { class: 'swatch' }) : null
    if (mark) mark.style.background = swatch!
    return h('header', {}, h('h2', {}, mark, title),
      h('button', { type: 'button', class: 'close', 'aria-label': 'Close details (Escape)', title: 'Close (Escape)', onclick: () => this.store.set({ select: null }) }, '✕'))
  }

  private stackPart(stacks: Stacks, stack: number, title: string): Node[] {
    const frames = stacks.frames(stack)
    const { noise } = this.store.state
    const noisy = frames.filter((frame) => frame.noise).length
    const toggle = noisy === 0 ? null : h('label', { class: 'switch', title: 'Frames of the interpreter loop, the dispatcher and the unwinder (N)' },
      checkbox(noise, (on) => this.store.set({ noise: on })), `${formatCount(noisy)} runtime`)
    return [
      h('div', { class: 'stack-head' }, h('h3', {}, `${title} (${formatCount(frames.length)})`), toggle,
        frames.length ? copyButton('Copy', () => stackText(frames, this.store.state.noise), 'Copy the stack as text') : null),
      stackList(frames, noise, () => this.store.set({ noise: true })),
    ]
  }
}

const LEFT_OUT = 'not in this report (left out to fit its size)'

function checkbox(on: boolean, onChange: (on: boolean) => void): HTMLInputElement {
  const box = h('input', { type: 'checkbox', checked: on })
  box.addEventListener('change', () => onChange(box.checked))
  return box
}

function rowsOf(scene: Scene, data: DeviceData, id: number, onShow: (event: number) => void): Row[] {
  const { info } = scene
  const peakPosition = info.peakEvent + 1
  const atPeak = data.start[id] <= peakPosition && data.end[id] > peakPosition
  const address = formatAddress(data.addrHi[id], data.addrLo[id])
  const kept = <T>(column: string, value: T): T | string => (info.leftOut.includes(column) ? LEFT_OUT : value)
  const moment = (event: number): Node | null => (event < 0 ? null : momentLink(scene, event, onShow))
  return [
    ['Address', kept('addr_lo', h('span', { class: 'mono' }, address, ' ', copyButton('Copy', () => address, 'Copy the address')))],
    ['Origin', originOf(data, id)],
    ['Allocated at', moment(data.allocEvent[id])],
    ['Free requested', kept('requested', data.freeRequestedEvent[id] === data.freeEvent[id] ? null : moment(data.freeRequestedEvent[id]))],
    ['Freed at', moment(data.freeEvent[id]) ?? (data.n > 0 ? 'not freed: alive at the end' : null)],
    ['Live for', data.n > 0 ? describeSpan(data, id) : null],
    ['Share of peak', atPeak ? `${formatShare(data.size[id], info.peakBytes)} of the peak` : 'not live at the peak'],
    ['Place in stack', placeOf(data, id, atPeak ? peakPosition : data.start[id], atPeak)],
    ['Stream', kept('stream', info.streams[data.stream[id]] ?? null)],
    ['Pool', kept('pool', info.pools[data.pool[id]] || null)],
    ['Category', info.categories[data.category[id]] ?? null],
    ['Compile context', kept('context', info.contexts[data.context[id]] || null)],
    ['Metadata', kept('metadata', info.metadata[data.metadata[id]] || null)],
    ['Number', formatCount(id)],
  ]
}

function momentLink(scene: Scene, event: number, onShow: (event: number) => void): HTMLElement {
  const time = describeMoment(scene, event)
  return h('span', {},
    h('button', { type: 'button', class: 'link', title: 'Show this event', onclick: () => onShow(event) }, `event ${formatCount(event)}`),
    time && h('span', { class: 'soft' }, ` ${time}`))
}

function originOf(data: DeviceData, id: number): string {
  if (data.allocEvent[id] >= 0) return 'allocated within the trace'
  if (data.freeEvent[id] >= 0) return 'from before the trace: only its free was recorded'
  return 'from before the trace: known from the final state'
}

function placeOf(data: DeviceData, id: number, position: number, atPeak: boolean): string | null {
  const offset = offsetOf(data, id, position)
  return Number.isNaN(offset) ? null : `${formatBytesExact(offset)} from the bottom ${atPeak ? 'at the peak' : 'when it begins'}`
}
