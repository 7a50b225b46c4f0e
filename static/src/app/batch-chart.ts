// The peak over the batch: lines for allocated and reserved, a dashed one for each card, and a mark at the chosen batch.

import { formatBytes } from '../layout/format'
import { byteTicks } from '../layout/ticks'
import { fill, h, svg, svgText } from '../ui/dom'
import { CARDS, type Card } from '../whatif/cards'

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [340, 190, 52, 48, 10, 20]
const VIEW_BOX = `0 0 ${WIDTH} ${HEIGHT}`
/** Cards above this, times the highest peak, would flatten the lines. */
const FAR = 2
/** Between two labels. */
const LINE = 12

/** Bytes at a multiple of the recorded batch. least: the peak if what may grow does not. reserved: null if not replayed. */
export interface BatchPoint {
  factor: number
  least: number
  allocated: number
  reserved: number | null
}

/** Shows a figure as high as with points, so that what stands below does not move when they arrive. */
export function drawPendingChart(figure: HTMLElement): void {
  fill(figure, svg('svg', { viewBox: VIEW_BOX }), h('figcaption', 'Replaying the allocator…'))
}

/** Shows the points in a figure. `choose`: called with the factor that a click is nearest to. */
export function drawBatchChart(
  figure: HTMLElement,
  points: readonly BatchPoint[],
  chosen: number,
  fits: string,
  choose: (factor: number) => void,
): void {
  const most = points[points.length - 1].factor
  const peak = Math.max(...points.map(highest))
  const cards = CARDS.filter(
    ({ usable }, i) => usable <= peak || (usable <= FAR * peak && !(CARDS[i - 1]?.usable > peak)),
  )
  // Where nothing is left, the lines lie on the axis of an empty chart.
  const high = Math.max(peak, ...cards.map(({ usable }) => usable)) * 1.04 || 2 ** 20
  const x = (factor: number): number => LEFT + ((WIDTH - LEFT - RIGHT) * factor) / most
  const y = (bytes: number): number => TOP + (HEIGHT - TOP - BOTTOM) * (1 - bytes / high)
  const line = (name: string, of: (point: BatchPoint) => number | null): SVGElement => {
    const known = points.filter((point) => of(point) !== null)
    return svg('polyline', { class: name, points: known.map((p) => `${x(p.factor)},${y(of(p)!)}`).join(' ') })
  }
  const range = [...points.map((p) => [p.factor, p.allocated]), ...points.map((p) => [p.factor, p.least]).reverse()]
  const picture = svg(
    'svg',
    { viewBox: VIEW_BOX, role: 'img', 'aria-label': summary(points, cards, fits) },
    ...byteTicks(0, high, 4).flatMap(({ value, label }) => [
      svg('path', { class: 'grid', d: `M${LEFT} ${y(value)}H${WIDTH - RIGHT}` }),
      svgText(LEFT - 5, y(value) + 4, 'end', label),
    ]),
    ...[1, most / 2, most].map((factor) => svgText(x(factor), HEIGHT - 5, 'middle', `×${factor}`)),
    ...cardLines(cards, y),
    svg('polygon', { class: 'range', points: range.map(([factor, bytes]) => `${x(factor)},${y(bytes)}`).join(' ') }),
    line('allocated', ({ allocated }) => allocated),
    line('reserved', ({ reserved }) => reserved),
    svg('path', { class: 'chosen', d: `M${x(chosen)} ${TOP}V${HEIGHT - BOTTOM}` }),
  )
  picture.addEventListener('click', ({ clientX }) => {
    const box = picture.getBoundingClientRect()
    const off = ({ factor }: BatchPoint): number => Math.abs(box.left + (x(factor) / WIDTH) * box.width - clientX)
    choose(points.reduce((best, point) => (off(point) < off(best) ? point : best)).factor)
  })
  const caption = h(
    'figcaption',
    'Peak ',
    h('b.reserved', 'reserved'),
    ' and ',
    h('b.allocated', 'allocated'),
    ' over the batch, an estimate.',
    cards.length > 0 && ` ${largest(points, cards, fits)}`,
  )
  fill(figure, picture, caption)
}

function highest({ allocated, reserved }: BatchPoint): number {
  return Math.max(allocated, reserved ?? 0)
}

/** A label that another would cover is left out. */
function cardLines(cards: readonly Card[], y: (bytes: number) => number): SVGElement[] {
  let last = Infinity
  return cards.flatMap(({ name, usable }) => {
    const at = y(usable)
    const path = svg('path', { class: 'card', d: `M${LEFT} ${at}H${WIDTH - RIGHT}` })
    if (last - at < LINE) return [path]
    last = at
    return [path, svgText(WIDTH - RIGHT + 4, at + 4, 'start', name)]
  })
}

/** "What fits: × 1.5 on 24 GB, × 2 on 32 GB." Of the values drawn; nothing of a card that all fit. */
function largest(points: readonly BatchPoint[], cards: readonly Card[], what: string): string {
  const found = cards.flatMap(({ name, usable }) => {
    const fits = points.filter((point) => (point.reserved ?? Infinity) <= usable)
    return fits.length > 0 && fits.length < points.length ? [`× ${fits[fits.length - 1].factor} on ${name}`] : []
  })
  return found.length ? `${what}: ${found.join(', ')}.` : ''
}

function summary(points: readonly BatchPoint[], cards: readonly Card[], fits: string): string {
  const ends = [points[0], points[points.length - 1]].map(
    (point) => `${formatBytes(highest(point))} at × ${point.factor}`,
  )
  return `Peak memory over the batch: ${ends.join(' to ')}. ${largest(points, cards, fits)}`
}
