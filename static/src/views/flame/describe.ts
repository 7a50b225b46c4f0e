// Cells and totals in words: for the tooltip, the live text and the line over the picture.

import type { Frame } from '../../data/model'
import { type Cell, isChain, weightOf } from '../../flame/layout'
import type { FlameTree, Sum } from '../../flame/tree'
import type { Measure } from '../../flame/weigh'
import { formatBytes, formatCount } from '../../layout/format'
import { formatChange, formatShare, plural } from '../../ui/format'
import type { Line } from '../shared/describe'
import type { ViewContext } from '../view'
import { isDifference } from './choices'

export const MEASURE_NAMES: Record<Measure, string> = {
  live: 'Live bytes',
  events: 'Live bytes × lifetime in events',
  seconds: 'Live bytes × lifetime in seconds',
  count: 'Live allocations',
  allocated: 'Bytes allocated in the trace',
  allocations: 'Allocations in the trace',
  growth: 'Growth between two moments',
  reserved: 'Reserved bytes by cudaMalloc',
  diff: 'Difference to the other snapshot',
}

export function formatAmount(amount: number, measure: Measure): string {
  if (measure === 'count' || measure === 'allocations') return plural(amount, 'allocation')
  if (measure === 'events') return `${formatBytes(amount)}·events`
  return measure === 'seconds' ? `${formatBytes(Number(amount.toPrecision(12)))}·s` : formatBytes(amount)
}

/** The weight of a cell; of growth the difference with its sign: "+1.20 GiB". */
export function formatSum({ value, loss }: Sum, measure: Measure): string {
  return isDifference(measure) ? formatChange(value - loss) : formatAmount(value, measure)
}

/** The frame that a cell ends at; null for cells that stand for no frame. */
export function frameOf(tree: FlameTree, cell: Cell, frame: (id: number) => Frame): Frame | null {
  // A focused frame may weigh nothing at this moment: then it has no row to be read from.
  if (cell.depth === 0 || cell.low === cell.high || (cell.kind !== 'frame' && !isChain(cell.kind))) return null
  return frame(tree.paths.frameOfKey[tree.key(cell.inner.low, cell.depth - 1)])
}

/** The text in a cell. */
export function nameOfCell(cell: Cell, frame: Frame | null): string {
  switch (cell.kind) {
    case 'all':
      return 'All'
    case 'own':
      return 'itself'
    case 'none':
      return 'no stack trace'
    case 'more':
      return `${formatCount(cell.frames)} more`
    case 'chain':
      return `… ${plural(cell.frames, 'common frame')}, to ${frame?.name || '?'}`
    case 'native':
      return plural(cell.frames, 'C++ frame')
    default:
      return frame?.name || '?'
  }
}

/** The outermost operator of a chain of C++ frames: what the program called; '' where none of them stands for one. */
export function operatorOf(tree: FlameTree, cell: Cell, frame: (id: number) => Frame): string {
  const operators = Array.from({ length: cell.frames }, (_, i) => {
    const key = tree.key(cell.inner.low, cell.depth - cell.frames + i)
    return frame(tree.paths.frameOfKey[key]).operator
  })
  if (tree.paths.options.root === 'leaf') operators.reverse()
  return operators.find(Boolean) ?? ''
}

/** "train.py:12"; "train.py" of a function of which several lines meet in the cell; '' where none was recorded. */
export function placeOf(tree: FlameTree, cell: Cell, frame: Frame | null, short = true): string {
  if (!frame?.filename || frame.filename === '??') return ''
  const file = short ? frame.file : frame.filename
  const line = tree.paths.options.merge === 'line' ? frame.line : lineOf(tree, cell)
  return line > 0 ? `${file}:${line}` : file
}

/** The line that all stacks of a cell share: found in a pass over them, painted many times. */
const lines = new WeakMap<Cell, number>()

function lineOf(tree: FlameTree, cell: Cell): number {
  const line = lines.get(cell) ?? tree.line({ ...cell.inner, depth: cell.depth })
  lines.set(cell, line)
  return line
}

export function describeCell(
  tree: FlameTree,
  cell: Cell,
  above: { cell: Cell | null; focus: Cell; all: Sum },
  frame: Frame | null,
  frameAbove: Frame | null,
): Line[] {
  const { measure } = tree.weights
  const lines: Line[] = [{ kind: 'title', text: titleOf(cell, frame, frameAbove) }]
  const place = placeOf(tree, cell, frame, false)
  if (cell.kind === 'native') lines.push({ kind: 'frame', text: `to ${frame?.name || '?'}` })
  if (place) lines.push({ kind: 'frame', text: place })
  if (isChain(cell.kind)) lines.push({ kind: 'soft', text: 'Click to show each frame' })
  lines.push({ kind: 'plain', text: formatSum(cell, measure) })
  if (cell.loss > 0 && cell.value > 0) {
    lines.push({ kind: 'plain', text: `gained ${formatBytes(cell.value)}, lost ${formatBytes(cell.loss)}` })
  }
  const whole = isDifference(measure) ? 'all changes' : 'total'
  const shares = [`${formatShare(weightOf(cell), weightOf(above.all))} of ${whole}`]
  if (above.focus.depth > 0) shares.push(`${formatShare(weightOf(cell), weightOf(above.focus))} of the focus`)
  if (above.cell && above.cell !== above.focus)
    shares.push(`${formatShare(weightOf(cell), weightOf(above.cell))} of the frame above`)
  lines.push({ kind: 'plain', text: shares.join(', ') })
  if (measure !== 'count' && measure !== 'allocations') lines.push({ kind: 'soft', text: countOf(cell, measure) })
  if (tree.weights.matched && !isDifference(measure)) {
    lines.push({
      kind: 'soft',
      text: `matches ${formatAmount(cell.matched, measure)}, ${formatShare(cell.matched, cell.value)}`,
    })
  }
  return lines
}

function titleOf(cell: Cell, frame: Frame | null, above: Frame | null): string {
  switch (cell.kind) {
    case 'own':
      return `${above?.name || '?'} itself, in none of the frames under it`
    case 'more':
      return `${plural(cell.frames, 'more frame')}, each too narrow to draw or left aside by a folded chain${above ? `, under ${above.name || '?'}` : ''}`
    default:
      return nameOfCell(cell, frame)
  }
}

function countOf({ count }: Cell, measure: Measure): string {
  if (measure === 'reserved') return plural(count, 'segment')
  if (!isDifference(measure)) return plural(count, 'allocation')
  return count === 0
    ? 'as many allocations'
    : `${plural(Math.abs(count), 'allocation')} ${count > 0 ? 'more' : 'fewer'}`
}

/** The line over the picture. */
export function describeTotal(tree: FlameTree, all: Sum, from: number, context: ViewContext): string {
  const { measure, matchedTotal } = tree.weights
  const parts: string[] = []
  if (measure === 'growth') {
    const since = from < 0 ? 'before the first event' : `event ${formatCount(from)}`
    parts.push(
      `${formatSum(all, measure)} since ${since}: gained ${formatBytes(all.value)}, lost ${formatBytes(all.loss)}`,
    )
  } else if (measure === 'diff') {
    const name = context.baseline?.moment.name ?? ''
    parts.push(
      `${formatSum(all, measure)} compared with the other snapshot, ${name}: gained ${formatBytes(all.value)}, lost ${formatBytes(all.loss)}`,
    )
  } else if (measure === 'allocated' || measure === 'allocations') {
    parts.push(`${formatAmount(all.value, measure)} over the whole trace`)
  } else if (measure === 'reserved') {
    parts.push(`${formatAmount(all.value, measure)} reserved`, plural(all.count, 'segment'))
  } else {
    parts.push(`${formatAmount(all.value, measure)} live`)
  }
  if (!isDifference(measure) && measure !== 'count' && measure !== 'allocations' && measure !== 'reserved')
    parts.push(plural(all.count, 'allocation'))
  parts.push(plural(tree.rows, 'stack'))
  if (matchedTotal !== null) {
    const text = isDifference(measure)
      ? `matches ${formatChange(matchedTotal)} of ${formatSum(all, measure)}`
      : `matches ${formatAmount(matchedTotal, measure)} of ${formatAmount(all.value, measure)}, ${formatShare(matchedTotal, all.value)}`
    parts.push(text)
  }
  if (tree.rows > 0 && tree.length(tree.rows - 1) === 0) parts.push('no stack was recorded with any of them')
  else if (context.stacks.count === 0) parts.push('this snapshot holds no stacks')
  return parts.join(', ')
}

/** The reason why there is nothing to draw. */
export function explainEmpty(measure: Measure, { data, baseline }: ViewContext): string {
  if (measure === 'diff')
    return baseline
      ? 'Nothing is allocated in either snapshot at this moment.'
      : 'The comparison is shown with the device of the later snapshot: choose it above.'
  if (measure === 'reserved') return 'Nothing is reserved at this moment.'
  if (data.N === 0) return 'This device has no allocations.'
  if (measure === 'seconds' && !data.clockUs)
    return 'Recorded without times, or they are not read yet: lifetimes in seconds need them.'
  const ofTrace = measure === 'allocated' || measure === 'allocations'
  if (data.n === 0 && (ofTrace || measure === 'growth' || measure === 'events' || measure === 'seconds')) {
    return 'Recorded without history: there is no trace, only the final state. Live bytes can be shown.'
  }
  if (ofTrace) return 'Nothing was allocated in the trace.'
  return measure === 'growth'
    ? 'No stack has more or fewer bytes than at the other moment.'
    : 'Nothing is live at this moment.'
}
