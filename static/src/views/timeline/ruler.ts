// The ruler: bytes, events and time between two points of the timeline. The link stores it as
// timeline.ruler=event..event,byte..byte (from the first point to the second).

import type { Rect } from '../../layout/viewport'
import { formatBytes, formatDuration } from '../../layout/format'
import { eventToUs } from '../../layout/ticks'
import { type Frame, pixelToX, pixelToY, xToPixel, yToPixel } from './frame'
import type { Scene } from '../shared/scene'
import { fill, h } from '../../ui/dom'
import { plural } from '../../ui/format'
import type { Store } from '../../ui/state'

export const RULER = 'timeline.ruler'

/** Two points: events (fractions allowed) and bytes. */
export interface RulerPoints {
  e0: number
  e1: number
  b0: number
  b1: number
}

/** The measures between the points. Differences are second minus first. */
export interface Measure {
  events: number
  /** null without times */
  us: number | null
  bytes: number
  /** Difference in allocated; null before the columns have arrived. */
  allocated: number | null
  allocatedFrom: number
  allocatedTo: number
}

export function readRuler(text: string | undefined): RulerPoints | null {
  const found = /^(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?),(\d+)\.\.(\d+)$/.exec(text ?? '')
  if (!found) return null
  const [e0, e1, b0, b1] = found.slice(1).map(Number)
  return [e0, e1, b0, b1].every(Number.isFinite) ? { e0, e1, b0, b1 } : null
}

export function writeRuler({ e0, e1, b0, b1 }: RulerPoints): string {
  const event = (e: number): string => String(Number(e.toFixed(2)))
  return `${event(e0)}..${event(e1)},${Math.max(0, Math.round(b0))}..${Math.max(0, Math.round(b1))}`
}

export function measure({ info, data }: Scene, { e0, e1, b0, b1 }: RulerPoints): Measure {
  // An event's state is in force from its place on: at e the last one is floor(e).
  const position = (event: number): number => Math.max(0, Math.min(info.events, Math.floor(event) + 1))
  const clock = data?.clockUs
  return {
    events: Math.floor(e1) - Math.floor(e0),
    us: clock?.length ? eventToUs(clock, e1) - eventToUs(clock, e0) : null,
    bytes: b1 - b0,
    allocated: data ? data.allocated[position(e1)] - data.allocated[position(e0)] : null,
    allocatedFrom: data ? data.allocated[position(e0)] : 0,
    allocatedTo: data ? data.allocated[position(e1)] : 0,
  }
}

export function measureLines(m: Measure): string[] {
  const signed = (bytes: number): string => `${bytes > 0 ? '+' : ''}${formatBytes(bytes)}`
  return [
    [plural(Math.abs(m.events), 'event'), m.us !== null && formatDuration(Math.abs(m.us))].filter(Boolean).join(', '),
    `${formatBytes(Math.abs(m.bytes))} high`,
    m.allocated === null
      ? ''
      : `allocated ${signed(m.allocated)} (${formatBytes(m.allocatedFrom)} → ${formatBytes(m.allocatedTo)})`,
  ].filter(Boolean)
}

export class Ruler {
  /** The box of figures in the plot, beside the ruler. */
  readonly element = h('output.ruler.corner', { 'aria-live': 'polite', hidden: true })
  /** Plain drags measure. */
  isOn = false
  private shownText = ''

  constructor(private readonly store: Store) {}

  /** Turns it on, or off and clears it. */
  toggle(): void {
    this.isOn = !this.isOn
    if (!this.isOn) this.clear()
  }

  /** False when there was nothing to clear. */
  clear(): boolean {
    const was = this.isOn || RULER in this.store.state.options
    this.isOn = false
    this.store.setOption(RULER, null)
    return was
  }

  /** Between two corners of a box in pixels of the plot. */
  set(frame: Frame, box: Rect): void {
    this.store.setOption(RULER, writeRuler(pointsOf(frame, box)))
  }

  /** From corner to corner of the window, for those without a pointer. */
  setToWindow({ window, scale }: Frame): void {
    this.store.setOption(
      RULER,
      writeRuler({ e0: scale.toEvent(window.x0), e1: scale.toEvent(window.x1), b0: window.y0, b1: window.y1 }),
    )
  }

  /** Draws the ruler being dragged, else the one in the link. */
  draw(frame: Frame, box: Rect | null): void {
    const points = box && this.isOn ? pointsOf(frame, box) : readRuler(this.store.state.options[RULER])
    const { element } = this
    element.hidden = points === null
    if (!points) {
      this.shownText = ''
      return
    }
    const { rects, plot, inks, scale } = frame
    const x = (event: number): number => clip(xToPixel(frame, scale.toAxis(event)), plot.width)
    const y = (byte: number): number => clip(yToPixel(frame, byte), plot.height)
    const [x0, x1, y0, y1] = [x(points.e0), x(points.e1), y(points.b0), y(points.b1)]
    rects.ink(inks.selection)
    rects.add(Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1))
    for (const [ink, half] of [
      [inks.halo, 2],
      [inks.accent, 0.75],
    ] as const) {
      rects.ink(ink)
      for (const at of [x0, x1]) rects.add(at - half, Math.min(y0, y1), at + half, Math.max(y0, y1))
      for (const at of [y0, y1]) rects.add(Math.min(x0, x1), at - half, Math.max(x0, x1), at + half)
    }
    const lines = measureLines(measure(frame.scene, points))
    const text = lines.join('\n')
    if (text !== this.shownText) fill(element, ...lines.map((line) => h('div', line)))
    this.shownText = text
    const left = Math.max(2, Math.min(plot.width - element.offsetWidth - 2, Math.max(x0, x1) + 8))
    const top = Math.max(2, Math.min(plot.height - element.offsetHeight - 2, Math.min(y0, y1)))
    element.style.transform = `translate(${Math.round(plot.left + left)}px, ${Math.round(plot.top + top)}px)`
  }
}

function pointsOf(frame: Frame, box: Rect): RulerPoints {
  const event = (x: number): number => frame.scale.toEvent(pixelToX(frame, clip(x, frame.plot.width)))
  const byte = (y: number): number => pixelToY(frame, clip(y, frame.plot.height))
  return { e0: event(box.x0), e1: event(box.x1), b0: byte(box.y0), b1: byte(box.y1) }
}

function clip(value: number, high: number): number {
  return Math.min(high, Math.max(0, value))
}
