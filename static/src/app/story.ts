// The story of a report, told in steps: how memory rose, what holds it, what went wrong, what would help. Each step is a place
// of the report, with an address; the arrow keys go from one to the next.

import { heldByLine } from '../data/held-memory'
import type { DeviceData, Stacks } from '../data/model'
import { formatBytes, formatCount } from '../layout/format'
import { fill, h } from '../ui/dom'
import { formatShare, plural } from '../ui/format'
import type { State, Store } from '../ui/state'
import { describeFrame } from '../views/shared/describe'
import type { Scene } from '../views/shared/scene'
import { Memo } from '../views/memo'

const STEP = 'story.step'
/** Below this share of the way from the least to the most allocated memory, it has not risen yet. */
const RISEN = 0.1
/** What memory falls and rises again by, of the most, where one rise ends and another begins. */
const VALLEY = 0.3
/** Of the window, around what a step shows. */
const MARGIN = 0.15
const [MOST_PROBLEMS, MOST_REMEDIES] = [3, 3]

interface Step {
  text: (Node | string)[]
  /** Its place: "#view=timeline&…" */
  hash: string
}

interface Page {
  store: Store
  scene(): Scene | null
  /** Goes to an address of this report. */
  follow(hash: string): void
}

export class Story {
  readonly element: HTMLElement
  private readonly text = h('output.story-text')
  private readonly back = this.button('‹', 'The step before (left arrow)', () => this.move(-1))
  private readonly on = this.button('›', 'The next step (right arrow)', () => this.move(1))
  private readonly told = new Memo<Step[]>()

  constructor(private readonly page: Page) {
    const close = this.button('✕', 'Close the story', () => this.close())
    close.classList.add('close')
    this.element = h('section.row.story', { 'aria-label': 'Story', hidden: true }, this.back, this.on, this.text, close)
    document.addEventListener('keydown', (event) => this.key(event), { capture: true })
  }

  get isOpen(): boolean {
    return this.page.store.state.options[STEP] !== undefined
  }

  toggle(): void {
    if (this.isOpen) this.close()
    else this.show(0)
  }

  render({ options, view }: State): void {
    const steps = this.isOpen ? this.steps() : []
    this.element.hidden = steps.length === 0 || view === 'job' || view === 'diff'
    if (this.element.hidden) return
    const at = clampTo(Number(options[STEP]), steps.length)
    const { text } = steps[at]
    this.back.disabled = at === 0
    this.on.disabled = at === steps.length - 1
    fill(this.text, h('b', `${at + 1} of ${steps.length}`), ' ', ...text.map((part) => clone(part)))
  }

  /** Texts and addresses, for tests. */
  debug(): unknown {
    return this.steps().map(({ text, hash }) => ({
      text: text.map((part) => (typeof part === 'string' ? part : (part.textContent ?? ''))).join(''),
      hash,
    }))
  }

  private button(label: string, title: string, onclick: () => void): HTMLButtonElement {
    return h('button.small', { title, 'aria-label': title, onclick }, label)
  }

  private close(): void {
    this.page.store.setOption(STEP, null)
  }

  private move(by: 1 | -1): void {
    const at = clampTo(Number(this.page.store.state.options[STEP]), this.steps().length)
    if (at + by >= 0 && at + by < this.steps().length) this.show(at + by)
  }

  private show(at: number): void {
    const step = this.steps()[at]
    if (step) this.page.follow(`${step.hash}&${STEP}=${at}`)
  }

  private key(event: KeyboardEvent): void {
    const by = event.key === 'ArrowLeft' ? -1 : event.key === 'ArrowRight' ? 1 : 0
    const isText = event.target instanceof Element && event.target.closest('input, select, textarea, dialog') !== null
    if (this.element.hidden || isText || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return
    if (event.key === 'Escape') this.close()
    else if (by) this.move(by)
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  private steps(): Step[] {
    const scene = this.page.scene()
    if (!scene?.data || !scene.stacks) return []
    const { data, stacks } = scene
    return this.told.get([data], () => stepsOf(scene, data, stacks))
  }
}

function stepsOf(scene: Scene, data: DeviceData, stacks: Stacks): Step[] {
  const { info } = scene
  const { index } = info
  const oom = info.ooms.length ? info.ooms[info.ooms.length - 1].event : null
  const moment = oom ?? info.peak_event
  const place = (rest: string): string => `#view=timeline&device=${index}&at=${moment}${rest}`
  return [
    ...riseOf(data, moment, place),
    ...holdersOf(data, stacks, moment, place),
    ...chipsOf(index),
    ...remediesOf(index, place),
  ]
}

/** Where allocated memory begins to rise to what it is at a moment: after the last valley before it, else since the start. */
function riseOf({ allocated, info }: DeviceData, moment: number, place: (rest: string) => string): Step[] {
  const end = moment + 1
  const top = allocated[end]
  let low = end
  let isValley = false
  for (let at = end; at >= 0 && !isValley; at--) {
    if (allocated[at] < allocated[low]) low = at
    const depth = top - allocated[low]
    isValley = depth > VALLEY * top && allocated[at] > allocated[low] + depth / 2 && at < low
  }
  if (info.events < 2 || top === allocated[low]) return []
  const limit = allocated[low] + RISEN * (top - allocated[low])
  let from = end
  while (allocated[from] > limit) from--
  const margin = MARGIN * (end - from)
  const x = `${Math.max(-1, from - 1 - margin).toFixed(1)}..${Math.min(info.events, end + margin).toFixed(1)}`
  const start = from === 0 ? 'before the first event' : `at event ${formatCount(from - 1)}`
  const text = `Memory rises from ${formatBytes(allocated[from])} ${start} to ${formatBytes(top)} at event ${formatCount(moment)}.`
  const before = allocated.subarray(0, from + 1).reduce((high, bytes) => Math.max(high, bytes), 0)
  const isFlat = !isValley && from > 1 && before <= limit
  return [
    {
      text: [
        isFlat ? `At most ${formatBytes(before)} are allocated up to event ${formatCount(from - 1)}. ${text}` : text,
      ],
      hash: place(`&x=${x}`),
    },
  ]
}

/** The line of the program that holds most then, and how the rest is divided. */
function holdersOf(data: DeviceData, stacks: Stacks, moment: number, place: (rest: string) => string): Step[] {
  const [first, second] = heldByLine(data, stacks, moment + 1).filter(({ frame }) => frame !== null)
  const total = data.allocated[moment + 1]
  if (!first?.frame || total === 0) return []
  const file = first.frame.filename.split(/[\\/]/).pop() ?? ''
  const line = first.frame.line > 0 && /^[\w.-]+$/.test(file) ? `${file}:${first.frame.line}` : `stack:${first.stack}`
  const query = encodeURIComponent(`${line} live:${moment}`)
  const named = ({ frame, bytes, count }: typeof first): string =>
    `${describeFrame(frame!)}, ${formatBytes(bytes)} (${formatShare(bytes, total)}) in ${plural(count, 'allocation')}`
  const next = second ? `; next is ${named(second)}` : ''
  const when = moment < 0 ? 'Before the first event' : `At event ${formatCount(moment)}`
  const text = `${when} one line holds most: ${named(first)}${next}.`
  return [{ text: [text], hash: place(`&stack=${first.stack}&query=${query}`) }]
}

/** What went wrong, as the verdict says it. */
function chipsOf(device: number): Step[] {
  const chips = document.querySelectorAll<HTMLElement>(
    `#top .chip[data-device="${device}"]:not([data-remedy], [data-kind="peak"], [data-kind="advice"])`,
  )
  return [...chips].slice(0, MOST_PROBLEMS).flatMap((chip) => {
    const hash = chip.querySelector('a[href^="#"]')?.getAttribute('href')
    const text = [...chip.cloneNode(true).childNodes].filter(
      (part) => !(part instanceof Element && part.matches('b, .remedy')),
    )
    return hash ? [{ text, hash }] : []
  })
}

/** What would help, replayed as "Try a fix" does. */
function remediesOf(device: number, place: (rest: string) => string): Step[] {
  const remedies = document.querySelectorAll<HTMLElement>(`#remedies > li[data-device="${device}"]`)
  return [...remedies].slice(0, MOST_REMEDIES).map((remedy) => ({
    text: ['What would help: ', ...remedy.cloneNode(true).childNodes],
    hash: place(`&fix.on=${encodeURIComponent(remedy.dataset.rule ?? '')}&fix.open=yes`),
  }))
}

function clone(part: Node | string): Node | string {
  return typeof part === 'string' ? part : part.cloneNode(true)
}

function clampTo(step: number, count: number): number {
  return Math.max(0, Math.min(count - 1, Math.floor(step) || 0))
}
