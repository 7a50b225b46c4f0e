// What the toolbar offers on every view: bookmarks, and the view as a picture.

import { deviceName } from '../ui/devices'
import { button } from '../ui/controls'
import { copyButton, h } from '../ui/dom'
import { download, fileName } from '../ui/download'
import type { State } from '../ui/state'
import { describeWindow } from '../views/shared/describe'
import type { TimelineView } from '../views/timeline/timeline-view'
import { Bookmarks } from './bookmarks'
import type { JobHost } from './job-host'
import type { Fixes } from './fixes'
import { HAS_LINKS } from './hash'
import type { Legend } from './legend'
import type { Page } from './page'
import type { Split } from './split'
import type { Stage } from './stage'
import type { Story } from './story'
import { ticketText, verdictText } from './verdict'

interface Parts extends Page {
  /** The state of a report that was just opened. */
  start: State
  stage: Stage
  job: JobHost
  split(): Split
  fixes: Fixes
  legend: Legend
  story: Story
}

export class PageTools {
  readonly element: HTMLElement
  readonly bookmarks: Bookmarks
  private readonly save: HTMLButtonElement
  private readonly fixesButton: HTMLButtonElement
  private readonly storyButton: HTMLButtonElement

  constructor(private readonly parts: Parts) {
    this.bookmarks = new Bookmarks(parts.store, parts.start, parts.client.devices.length, () => this.nameOfView())
    this.save = button('PNG', 'Save the view as a picture (PNG)', () => void this.savePicture())
    this.fixesButton = button('Fixes', 'Try remedies and settings; list the findings', () => parts.fixes.toggle())
    this.storyButton = button('Story', 'Step through what happened and what would help', () => parts.story.toggle())
    const ticket = copyButton('Ticket', () => this.ticket(), 'Copy verdict, stack, remedies and a link as Markdown')
    this.element = h('div.row.wrap', this.storyButton, this.fixesButton, this.bookmarks.element, ticket, this.save)
  }

  render(state: State): void {
    this.save.hidden = state.view === 'summary'
    this.fixesButton.hidden = state.view !== 'timeline' || !this.parts.fixes.hasContent
    this.storyButton.hidden = ['job', 'diff', 'summary'].includes(state.view)
    this.storyButton.setAttribute('aria-pressed', String(this.parts.story.isOpen))
    this.fixesButton.setAttribute('aria-pressed', String(this.parts.fixes.isOpen(state)))
  }

  private ticket(): string {
    const { client, timeline, legend } = this.parts
    const { data = null, stacks = null } = timeline.currentScene ?? {}
    const words = {
      title: client.manifest.title,
      legend: legend.entries.map(({ text }) => text),
      address: HAS_LINKS ? location.href : '',
    }
    return ticketText(words, data, stacks)
  }

  /** The view as it is on screen, of both panes where there are two, with a caption each; null where it has no picture. */
  async picture(): Promise<HTMLCanvasElement | null> {
    const { client, store, timeline, stage, split, legend } = this.parts
    const { title } = client.manifest
    const { pane } = split()
    const words = { verdict: verdictText(), legend: legend.entries }
    if (!pane) return this.captioned(timeline, stage, { title, detail: this.nameOfView(), ...words })
    const { state } = store
    const { view } = state
    const pictures = await Promise.all([
      this.captioned(timeline, stage, { title, detail: `${split().titleOfFirst(state)}, ${view}` }),
      this.captioned(pane.timeline, pane.stage, { title, detail: `${pane.words}, ${view}` }),
    ])
    const available = pictures.filter((picture) => picture !== null)
    return available.length ? joined(available, pane.second.stacked) : null
  }

  private async captioned(timeline: TimelineView, stage: Stage, caption: Caption): Promise<HTMLCanvasElement | null> {
    const { store, job } = this.parts
    const { view } = store.state
    const element = view === 'timeline' ? timeline.element : view === 'job' ? job.element : stage.element
    let picture: HTMLCanvasElement | null
    if (view === 'timeline') {
      timeline.drawNow()
      picture = composite(element, '.line-label:not([hidden]), .ruler')
    } else picture = await (view === 'job' ? job : stage).picture()
    return picture && captioned(picture, caption, element)
  }

  private async savePicture(): Promise<void> {
    const { client, store, saved, tell } = this.parts
    try {
      const picture = await this.picture()
      if (picture) saved(await savePicture(picture, `${fileName(client.manifest.title, store.state.view)}.png`))
      else tell('This view has no picture to save.')
    } catch (error) {
      tell(`The picture cannot be saved: ${error instanceof Error ? error.message : String(error)}`)
    }
  }

  /** "cuda:0, timeline, events 120 to 480, at most 1.2 GiB allocated" */
  private nameOfView(): string {
    const { client, store, timeline } = this.parts
    const { view, x, device, query } = store.state
    const scene = timeline.currentScene
    const info = client.devices[device]
    const parts = [info && view !== 'job' && deviceName(client.manifest, info), view]
    if (view === 'timeline' && scene) parts.push(describeWindow(scene, x))
    if (query) parts.push(`matching ${query}`)
    return parts.filter(Boolean).join(', ')
  }
}

const LINE = 18
const PADDING = 14
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'
/** Lines of the verdict: what is longer ends in an ellipsis. */
const MOST_LINES = 2
/** Width of a column of the legend, in CSS pixels. */
const LEGEND_COLUMN = 330

export interface Caption {
  title: string
  /** What of the report is shown. */
  detail: string
  /** The cause and its remedy; "" for none. */
  verdict?: string
  /** What the colours stand for. */
  legend?: readonly { css: string; text: string }[]
}

/**
 * The canvases inside an element, each where it lies on screen, and the labels that are elements (`labels`: a selector), on the
 * element's background. In device pixels. Call right after drawing: a WebGL canvas keeps its pixels no longer.
 */
export function composite(element: HTMLElement, labels: string): HTMLCanvasElement {
  const ratio = devicePixelRatio || 1
  const base = element.getBoundingClientRect()
  const out = document.createElement('canvas')
  out.width = Math.max(1, Math.round(base.width * ratio))
  out.height = Math.max(1, Math.round(base.height * ratio))
  const ctx = out.getContext('2d')!
  ctx.fillStyle = getComputedStyle(element).getPropertyValue('--panel').trim()
  ctx.fillRect(0, 0, out.width, out.height)
  // On whole device pixels, as the screen has them: between them everything would blur.
  const px = (cssPixels: number): number => Math.round(cssPixels * ratio)
  for (const canvas of element.querySelectorAll('canvas')) {
    const box = canvas.getBoundingClientRect()
    const style = getComputedStyle(canvas)
    if (box.width === 0 || box.height === 0 || style.visibility === 'hidden') continue
    ctx.drawImage(canvas, px(box.left - base.left), px(box.top - base.top), px(box.width), px(box.height))
  }
  ctx.scale(ratio, ratio)
  for (const label of element.querySelectorAll<HTMLElement>(labels)) if (!label.hidden) drawLabel(ctx, label, base)
  return out
}

/** An element of plain lines: its box and its text. */
function drawLabel(ctx: CanvasRenderingContext2D, label: HTMLElement, base: DOMRect): void {
  const box = label.getBoundingClientRect()
  const style = getComputedStyle(label)
  const x = box.left - base.left
  const y = box.top - base.top
  ctx.fillStyle = style.backgroundColor
  ctx.fillRect(x, y, box.width, box.height)
  if (parseFloat(style.borderTopWidth) > 0) {
    ctx.strokeStyle = style.borderTopColor
    ctx.strokeRect(x + 0.5, y + 0.5, box.width - 1, box.height - 1)
  }
  ctx.fillStyle = style.color
  ctx.font = `${style.fontSize} ${FONT}`
  ctx.textBaseline = 'middle'
  ctx.textAlign = 'left'
  const lines = label.children.length
    ? Array.from(label.children, (line) => line.textContent ?? '')
    : [label.textContent ?? '']
  const height = (box.height - parseFloat(style.paddingTop) * 2) / lines.length
  lines.forEach((line, i) => {
    ctx.fillText(line, x + parseFloat(style.paddingLeft), y + parseFloat(style.paddingTop) + (i + 0.5) * height)
  })
}

/** A picture with its caption over it and its legend under it. `picture` is in device pixels. */
export function captioned(picture: HTMLCanvasElement, caption: Caption, element: Element): HTMLCanvasElement {
  const ratio = devicePixelRatio || 1
  const style = getComputedStyle(element)
  const ink = (name: string): string => style.getPropertyValue(name).trim()
  const out = document.createElement('canvas')
  const ctx = out.getContext('2d')!
  const width = picture.width / ratio - 2 * PADDING
  const small = `12px ${FONT}`
  ctx.font = small
  const verdict = caption.verdict ? wrapped(ctx, caption.verdict, width) : []
  const above = (2 + verdict.length) * LINE + 10
  const legend = caption.legend ?? []
  const columns = Math.max(1, Math.floor(width / LEGEND_COLUMN))
  const below = legend.length ? Math.ceil(legend.length / columns) * LINE + 10 : 0
  out.width = picture.width
  out.height = picture.height + Math.round(above * ratio) + Math.round(below * ratio)
  ctx.fillStyle = ink('--panel')
  ctx.fillRect(0, 0, out.width, out.height)
  ctx.drawImage(picture, 0, Math.round(above * ratio))
  ctx.scale(ratio, ratio)
  ctx.textBaseline = 'middle'
  const write = (text: string, x: number, y: number, most: number, colour = '--ink', font = small): void => {
    ctx.fillStyle = ink(colour)
    ctx.font = font
    ctx.fillText(text, x, y, most)
  }
  write(caption.title, PADDING, 15, width, '--ink', `600 14px ${FONT}`)
  for (const [i, line] of verdict.entries()) write(line, PADDING, 15 + LINE * (i + 1), width)
  write(caption.detail, PADDING, 15 + LINE * (verdict.length + 1), width, '--ink-soft')
  const top = above + picture.height / ratio
  legend.forEach(({ css, text }, i) => {
    const x = PADDING + (i % columns) * LEGEND_COLUMN
    const y = top + LINE * (Math.floor(i / columns) + 0.5)
    ctx.fillStyle = css
    ctx.fillRect(x, y - 5, 10, 10)
    write(text, x + 18, y, LEGEND_COLUMN - 30)
  })
  return out
}

/** A text in at most a few lines of so many pixels. */
function wrapped(ctx: CanvasRenderingContext2D, text: string, width: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    const longer = line ? `${line} ${word}` : word
    if (line && ctx.measureText(longer).width > width) {
      lines.push(line)
      line = word
    } else line = longer
  }
  lines.push(line)
  return lines.length <= MOST_LINES ? lines : [...lines.slice(0, MOST_LINES - 1), `${lines[MOST_LINES - 1]} …`]
}

/** Two pictures as one: side by side, or one over the other. */
export function joined(pictures: readonly HTMLCanvasElement[], stacked: boolean): HTMLCanvasElement {
  const gap = Math.round(PADDING * (devicePixelRatio || 1))
  const across = pictures.map(({ width }) => width)
  const down = pictures.map(({ height }) => height)
  const sum = (sizes: number[]): number => sizes.reduce((total, size) => total + size + gap, -gap)
  const out = document.createElement('canvas')
  out.width = stacked ? Math.max(...across) : sum(across)
  out.height = stacked ? sum(down) : Math.max(...down)
  const ctx = out.getContext('2d')!
  let at = 0
  for (const picture of pictures) {
    if (stacked) ctx.drawImage(picture, 0, at)
    else ctx.drawImage(picture, at, 0)
    at += gap + (stacked ? picture.height : picture.width)
  }
  return out
}

/** Downloads a picture as a file; settles with a message about it. Rejects where the browser cannot make one that large. */
export function savePicture(picture: HTMLCanvasElement, name: string): Promise<string> {
  return new Promise((resolve, reject) => {
    picture.toBlob((blob) => {
      if (!blob) return reject(new Error('the picture is too large for this browser'))
      resolve(download(name, 'image/png', [blob]))
    }, 'image/png')
  })
}
