// The labels that lie on the plot: how much a failed request wanted, and how much is reserved. None covers another, nor a
// hatched block; the failed request's is placed first and is always there.

import type { Rect } from '../../layout/viewport'
import { formatBytes } from '../../layout/format'
import { fill, h } from '../../ui/dom'
import { CARDS } from '../../whatif/cards'
import { Memo } from '../memo'
import { FONT } from '../shared/canvas-view'
import type { RangeMax } from '../shared/scene'
import type { FailedRequest } from './marks'
import { type Frame, pixelToX, xToPixel, yToPixel } from './frame'
import { remembered } from '../../data/remembered'

/** With its padding; the style sheet says the same. */
const HEIGHT = 16
const PADDING = 4
/** Between a label and what it must not touch. */
const GAP = 4
/** Farther from its line a label names nothing. */
const MOST_AWAY = 44

export class PlotLabels {
  readonly reserved = h('div.line-label.corner', { 'aria-hidden': 'true', hidden: true })
  readonly request = h('div.line-label.corner.request-label', { 'aria-hidden': 'true', hidden: true })

  /** Lines for what cards have, over a stack with other sizes. */
  readonly cards = h('div.card-lines', { 'aria-hidden': 'true' })

  /** What never changes: how much of it is out of sight, or may be. A click folds it away, or shows it. */
  readonly fold = h('button.line-label.corner.fold-label', { hidden: true })
  /** Called with whether it is to be folded away. */
  onFold: (isFolded: boolean) => void = () => {}
  private isFolded = false

  constructor() {
    this.fold.addEventListener('click', () => this.onFold(!this.isFolded))
    // Neither a drag of the plot nor a click on what lies below.
    for (const type of ['pointerdown', 'pointerup', 'dblclick'] as const)
      this.fold.addEventListener(type, (event) => event.stopPropagation())
  }

  place(frame: Frame, failed: readonly FailedRequest[]): void {
    const taken: Rect[] = [...failed]
    const named = failed.find(({ event }) => event === frame.moment) ?? failed[0]
    const request = named ? requestLabel(frame, named, failed) : null
    show(this.request, frame, request)
    if (request) taken.push(request.box)
    show(this.reserved, frame, reservedLabel(frame, taken))
    this.placeCards(frame)
    this.placeFold(frame)
  }

  private placeFold({ plot, scene, yBottom }: Frame): void {
    const { fold } = this
    fold.hidden = !scene.canFold
    if (fold.hidden) return
    this.isFolded = yBottom > 0
    const text = `${this.isFolded ? 'Show' : 'Fold'} ${formatBytes(scene.constant)} that never change`
    if (fold.textContent !== text) fold.textContent = text
    fold.style.transform = `translate(${Math.round(plot.left + GAP)}px, ${Math.round(plot.top + plot.height - HEIGHT - GAP)}px)`
  }

  private placeCards(frame: Frame): void {
    const { plot, scene, window } = frame
    const seen =
      scene.shown && !scene.isPart ? CARDS.filter(({ usable }) => usable > window.y0 && usable < window.y1) : []
    fill(
      this.cards,
      ...seen.map(({ name, usable }) => {
        const line = h('div', name)
        line.style.cssText = `left: ${plot.left}px; top: ${plot.top + yToPixel(frame, usable)}px; width: ${plot.width}px`
        return line
      }),
    )
  }
}

interface Label {
  text: string
  /** In pixels of the plot. */
  box: Rect
}

function show(element: HTMLElement, { plot }: Frame, label: Label | null): void {
  element.hidden = label === null
  if (!label) return
  if (element.textContent !== label.text) element.textContent = label.text
  const { x0, x1, y0 } = label.box
  element.style.transform = `translate(${Math.round(plot.left + x0)}px, ${Math.round(plot.top + y0)}px)`
  element.style.width = `${Math.ceil(x1 - x0)}px`
}

/** Of texts that were measured: to change a canvas's font takes longer than all else about a label. */
const widths = new Map<string, number>()

function widthOf({ strips: { top } }: Frame, text: string, font = FONT): number {
  return remembered(widths, font + text, () => {
    if (widths.size > 500) widths.clear()
    top.font = font
    const { width } = top.measureText(text)
    top.font = FONT
    return width + 2 * PADDING
  })
}

function overlaps(a: Rect, b: Rect, gap = GAP): boolean {
  return a.x0 < b.x1 + gap && b.x0 < a.x1 + gap && a.y0 < b.y1 + gap && b.y0 < a.y1 + gap
}

/** The size beside its block: to the left, to the right, above or below, where it covers no other block. */
function requestLabel(frame: Frame, block: FailedRequest, failed: readonly FailedRequest[]): Label {
  const { plot } = frame
  const text = `${block.isCut ? '↑ ' : ''}${formatBytes(block.bytes)} requested`
  const width = Math.min(plot.width, widthOf(frame, text, `600 ${FONT}`))
  const inside = (y: number): number => Math.min(plot.height - HEIGHT - 2, Math.max(2, y))
  const boxAt = (x: number, y: number): Rect => ({ x0: x, y0: y, x1: x + width, y1: y + HEIGHT })
  const middle = inside((block.y0 + block.y1 - HEIGHT) / 2)
  const last = Math.max(0, Math.min(plot.width - width, block.x0))
  const boxes = [
    boxAt(block.x0 - width - GAP, middle),
    boxAt(block.x1 + GAP, middle),
    boxAt(last, block.y0 - HEIGHT - GAP),
    boxAt(last, block.y1 + GAP),
  ]
  const box = boxes.find(
    (box) =>
      box.x0 >= 0 &&
      box.x1 <= plot.width &&
      box.y0 >= 0 &&
      box.y1 <= plot.height &&
      !failed.some((other) => overlaps(box, other, 0)),
  )
  return { text, box: box ?? boxAt(last, middle) }
}

/**
 * How much is reserved at the right end of the window: there, or left of what lies there already, over the line, under it, or
 * close by. Null where no place is left. Where the line is out of sight upwards it says so: a line that is not there tells nothing.
 */
function reservedLabel(frame: Frame, taken: readonly Rect[]): Label | null {
  const { plot } = frame
  const end = reservedAtEnd(frame)
  if (!end) return null
  const text = `${end.above ? '↑ ' : ''}reserved ${formatBytes(end.bytes)}`
  const width = widthOf(frame, text)
  // On the line it would hide it.
  const besides = taken.flatMap(({ y0, y1 }) => [y1 + GAP + 1, y0 - GAP - 1 - HEIGHT])
  const tops = end.above
    ? [2]
    : [end.y - HEIGHT - 3, end.y + 3, ...besides.filter((top) => Math.abs(top + HEIGHT / 2 - end.y) <= MOST_AWAY)]
  // Where the trace ends before the window, right behind its end: farther away it would belong to nothing.
  const lineEnd = xToPixel(frame, frame.scene.end(frame.scale))
  const free = Math.max(lineEnd, ...taken.map(({ x1 }) => x1))
  const last = Math.min(plot.width - GAP, free + GAP + 1 + width)
  for (const x1 of [last, ...taken.map(({ x0 }) => x0 - GAP - 1).sort((a, b) => b - a)]) {
    for (const y0 of tops) {
      const box = { x0: x1 - width, y0, x1, y1: y0 + HEIGHT }
      const fits = box.x0 >= 0 && y0 >= 2 && box.y1 <= plot.height
      if (fits && !taken.some((other) => overlaps(box, other))) return { text, box }
    }
  }
  return null
}

export class Lines {
  private readonly edge = new Memo<number[]>()
  private readonly reserved = new Memo<number[]>()

  /** Bytes by position to draw over the stack, and what finds their greatest; null: none. */
  curve: { values: Float64Array; greatest: RangeMax } | null = null

  draw(frame: Frame): void {
    const { scene, scale, window, plot, inks, rects } = frame
    const { drawn: data, allocatedMax, reservedMax } = scene
    if (!data || !allocatedMax || !reservedMax) return
    // Steps are cached while only the pointer moves: a thousand searches on a million positions take 2 ms.
    const seen = [scale, window.x0, window.x1, window.y0, window.y1, plot.width, plot.height]
    const edge = this.edge.get([data, ...seen], () => stepsOf(frame, allocatedMax, data.allocated))
    // Uprights of narrow spikes are close together: as dark as the level parts they would hide the spikes' bands.
    rects.ink(inks.ink, 0.25)
    addUprights(frame, edge, 1)
    rects.ink(inks.ink, 0.8)
    addTreads(frame, edge, 1)
    if (this.curve && this.curve.values.length === data.P)
      addCurve(frame, stepsOf(frame, this.curve.greatest, this.curve.values), inks.accent)
    if (scene.info.stats.peak_reserved_bytes <= 0 || scene.isPart) return
    const reserved = this.reserved.get([data, ...seen], () => stepsOf(frame, reservedMax, data.reserved))
    addCurve(frame, reserved, inks.reserved)
  }
}

/** A line in an ink, with a halo. */
function addCurve(frame: Frame, steps: number[], own: Frame['inks']['ink']): void {
  for (const [ink, thickness] of [
    [frame.inks.halo, 4],
    [own, 2],
  ] as const) {
    frame.rects.ink(ink)
    addUprights(frame, steps, thickness)
    addTreads(frame, steps, thickness)
  }
}

/** What is reserved at the right end of the window: pixels from the top of the plot; `above`: the line is out of sight upwards. */
function reservedAtEnd(frame: Frame): { y: number; above: boolean; bytes: number } | null {
  const { scene, window, scale } = frame
  const { drawn: data } = scene
  if (!data || scene.info.stats.peak_reserved_bytes <= 0 || scene.isPart) return null
  const [, to] = scene.positions(scale.axis, window.x0, window.x1)
  const bytes = data.reserved[Math.min(to, data.reserved.length) - 1]
  if (bytes < window.y0) return null
  return bytes > window.y1 ? { y: 0, above: true, bytes } : { y: yToPixel(frame, bytes), above: false, bytes }
}

/** x0, x1, y per step: neighbours have different y. */
function stepsOf(frame: Frame, greatest: RangeMax, values: Float64Array): number[] {
  const { scene, scale, window, plot } = frame
  const [from, to] = scene.positions(scale.axis, window.x0, window.x1)
  const steps: number[] = []
  const push = (x0: number, x1: number, y: number): void => {
    if (steps.length && steps[steps.length - 1] === y) steps[steps.length - 2] = x1
    else steps.push(x0, x1, y)
  }
  if (to - from <= plot.width) {
    for (let s = from; s < to; s++) {
      push(xToPixel(frame, scale.toAxis(s - 1)), xToPixel(frame, scale.toAxis(s)), yToPixel(frame, values[s]))
    }
  } else {
    // There may be room after the last event, where nothing is known.
    const end = Math.min(plot.width, xToPixel(frame, scene.end(scale)))
    for (let x = 0; x < end; x++) {
      const [low, high] = scene.positions(scale.axis, pixelToX(frame, x), pixelToX(frame, x + 1))
      push(x, x + 1, yToPixel(frame, greatest.max(low, high)))
    }
  }
  return steps
}

/** The level parts of a line of some thickness; clipped to what can be seen. */
function addTreads({ rects, plot }: Frame, steps: number[], thickness: number): void {
  const half = thickness / 2
  for (let i = 0; i < steps.length; i += 3) {
    const x0 = Math.max(-8, steps[i])
    const x1 = Math.min(plot.width + 8, steps[i + 1])
    const y = clipY(plot.height, steps[i + 2])
    if (x1 > x0) rects.add(x0, y - half, x1, y + half)
  }
}

/** The upright parts, where two steps meet. */
function addUprights({ rects, plot }: Frame, steps: number[], thickness: number): void {
  const half = thickness / 2
  for (let i = 3; i < steps.length; i += 3) {
    const before = clipY(plot.height, steps[i - 1])
    const y = clipY(plot.height, steps[i + 2])
    rects.add(steps[i] - half, Math.min(before, y) - half, steps[i] + half, Math.max(before, y) + half)
  }
}

function clipY(height: number, y: number): number {
  return Math.min(height + 8, Math.max(-8, y))
}
