// Growth over a series of snapshots: a line for all that is allocated at the end and one for each growing stack, all of
// them counted from the first snapshot. The arrow keys go from snapshot to snapshot and from line to line.

import type { SeriesDevice } from '../../data/contracts'
import { formatChange } from '../../ui/format'
import { formatBytes } from '../../layout/format'
import { append, h, svg, svgText } from '../../ui/dom'

/** Lines of single stacks, as many as can be distinguished. */
const MOST = 5
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 170, 64, 14, 10, 26]
/** Room below the chart for names of snapshots: the first and the last, where not all fit. */
const LETTERS = 80

interface Line {
  name: string
  bytes: readonly number[]
  slope: number
  /** The page's number of the stack; -1: the line is the total. */
  stack: number
}

interface GrowthChartParts {
  announce(text: string): void
  /** Shows a stack in the timeline of the last snapshot. */
  showStack(stack: number): void
}

function linesOf(row: SeriesDevice): Line[] {
  const stacks = row.stacks.filter(({ grows }) => grows).slice(0, MOST)
  return [
    { name: 'Allocated at the end', bytes: row.end_allocated_bytes, slope: row.slope, stack: -1 },
    ...stacks.map(({ place, bytes, bytes_per_snapshot: slope, stack }) => ({ name: place, bytes, slope, stack })),
  ]
}

export function growthChart(row: SeriesDevice, parts: GrowthChartParts): HTMLElement {
  const lines = linesOf(row)
  const count = row.files.length
  const growth = lines.map(({ bytes }) => bytes.map((value) => value - bytes[0]))
  const low = Math.min(0, ...growth.flat())
  const high = Math.max(low + 1, ...growth.flat())
  const x = (file: number): number => LEFT + ((WIDTH - LEFT - RIGHT) * file) / Math.max(1, count - 1)
  const y = (value: number): number => TOP + ((HEIGHT - TOP - BOTTOM) * (high - value)) / (high - low)

  const cursor = svg('line', { class: 'growth-cursor', y1: TOP, y2: HEIGHT - BOTTOM })
  const dot = svg('circle', { class: 'growth-dot', r: 5 })
  const picture = svg(
    'svg',
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, 'aria-hidden': 'true' },
    ...[...new Set([low, 0, (low + high) / 2, high])].map((value) => gridLine(y(value), value, value === 0)),
    ...fileNames(row.files, x),
    cursor,
    ...growth.map((values, i) =>
      svg('polyline', {
        class: `growth-line growth-${i}`,
        points: values.map((value, file) => `${x(file)},${y(value)}`).join(' '),
      }),
    ),
    dot,
  )
  const caption = h('p.growth-words')
  const chart = h(
    'div.growth-chart',
    {
      role: 'group',
      tabindex: 0,
      'aria-roledescription': 'line chart',
      'aria-label': `${summary(row, lines)} Arrow keys: left and right for snapshots, up and down for lines.`,
    },
    picture,
  )
  let [line, file] = [Math.min(1, lines.length - 1), count - 1]
  const show = (isMoved: boolean): void => {
    cursor.setAttribute('x1', String(x(file)))
    cursor.setAttribute('x2', String(x(file)))
    dot.setAttribute('cx', String(x(file)))
    dot.setAttribute('cy', String(y(growth[line][file])))
    dot.setAttribute('class', `growth-dot growth-${line}`)
    const text = `${lines[line].name}, ${row.files[file]}: ${formatBytes(lines[line].bytes[file])}, ${formatChange(growth[line][file])} since the first.`
    caption.textContent = text
    if (isMoved) parts.announce(text)
  }
  chart.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key]
    if (event.key === 'Home') file = 0
    else if (event.key === 'End') file = count - 1
    else if (step) {
      line = clamp(line + step[0], lines.length)
      file = clamp(file + step[1], count)
    } else return
    event.preventDefault()
    event.stopPropagation()
    show(true)
  })
  chart.addEventListener('pointermove', (event) => {
    const box = picture.getBoundingClientRect()
    const at = ((event.clientX - box.left) / box.width) * WIDTH
    file = clamp(Math.round(((at - LEFT) / (WIDTH - LEFT - RIGHT)) * (count - 1)), count)
    show(false)
  })
  show(false)
  return h('figure.growth', h('figcaption', summary(row, lines)), chart, legend(lines, parts), caption)
}

function summary(row: SeriesDevice, lines: readonly Line[]): string {
  const leaks = row.stacks.filter(({ grows }) => grows)
  if (leaks.length === 0) return `No stack grows over ${row.files.length} snapshots.`
  const rest = leaks.length > 1 ? ` ${leaks.length} stacks grow.` : ''
  return `${lines[1].name} leaks ${formatBytes(lines[1].slope)} a snapshot.${rest}`
}

function legend(lines: readonly Line[], parts: GrowthChartParts): HTMLElement {
  const list = h('ul.growth-legend')
  lines.forEach(({ name, slope, stack }, i) => {
    const key = svg('svg', { viewBox: '0 0 26 10', class: 'growth-key', 'aria-hidden': 'true' })
    append(key, svg('line', { class: `growth-line growth-${i}`, x1: 1, x2: 25, y1: 5, y2: 5 }))
    const text = ` ${name}: ${formatChange(slope)} a snapshot`
    const title = 'Show this stack in the timeline of the last snapshot'
    const open = (): void => parts.showStack(stack)
    const label = stack < 0 ? h('span', text) : h('button.link', { title, onclick: open }, text)
    append(list, h('li', key, label))
  })
  return list
}

function gridLine(y: number, value: number, isZero: boolean): SVGElement {
  return svg(
    'g',
    { class: isZero ? 'growth-grid growth-zero' : 'growth-grid' },
    svg('line', { x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }),
    svgText(LEFT - 6, y + 4, 'end', formatChange(Math.round(value))),
  )
}

function fileNames(files: readonly string[], x: (file: number) => number): SVGElement[] {
  const fit = files.every((file) => file.length * files.length <= LETTERS)
  const named = fit ? files.map((_, i) => i) : [0, files.length - 1]
  return named.map((i) => {
    const anchor = i === 0 ? 'start' : i === files.length - 1 ? 'end' : 'middle'
    return svgText(
      x(i),
      HEIGHT - 8,
      anchor,
      files[i].length > LETTERS / 2 ? `…${files[i].slice(1 - LETTERS / 2)}` : files[i],
    )
  })
}

function clamp(value: number, count: number): number {
  return Math.max(0, Math.min(count - 1, value))
}

export function seriesTable(row: SeriesDevice): HTMLElement {
  const cells = (values: readonly number[]): HTMLElement[] => values.map((bytes) => h('td', formatBytes(bytes)))
  return h(
    'details.diff-series',
    { open: true },
    h(
      'summary',
      `${row.files.length} snapshots: ${formatChange(row.slope)} from one to the next (median slope, allocated at the end)`,
    ),
    h(
      'div.diff-series-table',
      { tabindex: 0, role: 'region', 'aria-label': 'Numbers of the series' },
      h(
        'table',
        h(
          'thead',
          h(
            'tr',
            h('th', { scope: 'col' }, 'Snapshot'),
            ...row.files.map((file) => h('th', { scope: 'col', title: file }, file)),
          ),
        ),
        h(
          'tbody',
          h('tr', h('th', { scope: 'row' }, 'Peak allocated'), ...cells(row.peak_allocated_bytes)),
          h('tr', h('th', { scope: 'row' }, 'Allocated at the end'), ...cells(row.end_allocated_bytes)),
          h('tr', h('th', { scope: 'row' }, 'Peak reserved'), ...cells(row.peak_reserved_bytes)),
          ...row.stacks
            .filter(({ grows }) => grows)
            .map(({ place, bytes }) => h('tr', h('th', { scope: 'row', title: place }, place), ...cells(bytes))),
        ),
      ),
    ),
  )
}
