// Ranks grouped by what they hold: the spread of each group, and its outliers.

import type { JobGroup, JobOutlier } from '../data/contracts'
import { formatBytes } from '../layout/format'
import { swatch } from '../ui/controls'
import { fill, h } from '../ui/dom'
import { formatChange, capital, plural } from '../ui/format'
import { prepareCanvas } from '../views/shared/canvas-view'
import { css, groupColour } from '../views/shared/inks'
import { beyondNote, type Panel } from './panel'
import { type JobModel, rangeName } from './job-model'
import { type JobActions, rowsInWords } from './job-state'
import { rankLink, stackWords } from './links'
import { clippedEnd, medianOf, spreadOf } from './statistics'

/** Stacks named for a group, and outliers, before the rest is counted. */
const STACKS_OF_GROUP = 4
const OUTLIERS = 12

export class GroupsPanel implements Panel {
  readonly element = h('div.job-groups')
  private drawn = ''

  constructor(private readonly actions: JobActions) {}

  render(model: JobModel): void {
    const { data, state, dark, rows, peaks } = model
    const key = [dark, state.group, state.row, rows.join(), state.columns?.join('-'), state.axis.key].join('/')
    if (key === this.drawn) return
    this.drawn = key
    const { groups } = data.manifest
    const end = Math.max(1, clippedEnd(peaks.allocated))
    const brushed = rows.map((row) => peaks.allocated[row])
    fill(
      this.element,
      groups.length === 0 && h('p.soft', 'Too few ranks to compare: nothing is grouped.'),
      state.columns && h('p.soft', `Peaks are those of ${rangeName(state.axis, ...state.columns)}.`),
      groups.length > 0 && beyondNote('Charts', brushed, end, (index) => data.nameOf(rows[index])),
      ...groups.map((group, index) => this.groupCard(model, group, index, end)),
    )
  }

  /** A group, as far as its ranks are brushed; of one without any, its name alone. */
  private groupCard(model: JobModel, group: JobGroup, index: number, end: number): HTMLElement {
    const { data, state, dark, peaks } = model
    const isBrushed = state.group === index
    const members = group.rows.filter((row) => !state.rows || state.rows.has(row))
    const brush = h(
      'button.job-group-name.clip',
      {
        'aria-pressed': String(isBrushed),
        title: isBrushed ? 'Show all ranks' : 'Select the ranks of this group',
        onclick: () => this.actions.brushGroup(isBrushed ? null : index),
      },
      swatch(css(groupColour(index, dark))),
      group.name,
    )
    const isWhole = members.length === group.rows.length
    if (members.length === 0) {
      const none = h('span.soft', `${plural(group.rows.length, 'rank')}, none selected`)
      return h('section.job-group', h('header.row.wrap', brush, none))
    }
    const outliers = data.manifest.outliers.filter((one) => one.group === index && members.includes(one.row))
    const bytes = members.map((row) => peaks.allocated[row])
    const [min, max] = [Math.min(...bytes), Math.max(...bytes)].map(formatBytes)
    const many = min === max ? `each peaks at ${max}` : `peaks from ${min} to ${max}`
    const spread = members.length === 1 ? `peak ${max}` : many
    const count = isWhole ? plural(members.length, 'rank') : `${members.length} of ${plural(group.rows.length, 'rank')}`
    const ranks = capital(rowsInWords(data, members))
    const stacks = isWhole ? group.stacks.slice(0, STACKS_OF_GROUP) : this.largestStacks(model, members)
    return h(
      'section.job-group',
      h('header.row.wrap', brush, h('span.soft', `${count}, ${spread}`), spreadChart(model, members, end)),
      ranks !== group.name && h('p', ranks),
      isWhole && group.memory !== '' && h('p', capital(group.memory)),
      stacks.length > 0 &&
        h(
          'ul.job-holds',
          { 'aria-label': `Largest stacks, median of ${isWhole ? 'the group' : 'these ranks'}` },
          ...stacks.map(([stack, size]) =>
            h('li', h('span.number', formatBytes(size)), ...stackWords(data, this.actions, stack)),
          ),
        ),
      outliers.length > 0 &&
        h('p', outliers.length === 1 ? 'Outlier: ' : 'Outliers: ', ...this.outlierLinks(model, outliers)),
    )
  }

  /** The stacks with the highest medians over some rows, as numbers and bytes. */
  private largestStacks({ data }: JobModel, rows: readonly number[]): [stack: number, bytes: number][] {
    return Array.from(data.stackMax.keys())
      .map((stack): [number, number] => [stack, Math.round(medianOf(rows.map((row) => data.bytesOfStack(stack, row))))])
      .filter(([, bytes]) => bytes > 0)
      .sort((a, b) => b[1] - a[1])
      .slice(0, STACKS_OF_GROUP)
  }

  private outlierLinks({ data }: JobModel, outliers: readonly JobOutlier[]): (Node | string)[] {
    const links = outliers
      .slice(0, OUTLIERS)
      .flatMap(({ row }, i) => [i ? ', ' : '', rankLink(data, this.actions, row)])
    return outliers.length > OUTLIERS ? [...links, ` and ${outliers.length - OUTLIERS} more`] : links
  }
}

/** Bytes above what was expected, and of what. */
export function outlierStacks(
  data: JobModel['data'],
  actions: JobActions,
  stacks: JobOutlier['stacks'],
): HTMLElement | null {
  if (stacks.length === 0) return null
  return h(
    'ul.job-holds',
    { 'aria-label': 'Stacks that make the difference' },
    ...stacks.map(([stack, above, bytes, expected]) =>
      h(
        'li',
        { title: `${formatBytes(bytes)}, where its group has ${formatBytes(expected)}` },
        h('span.number.above', formatChange(above)),
        ...stackWords(data, actions, stack),
      ),
    ),
  )
}

const WIDTH = 150
const HEIGHT = 20

/** All charts of a page have the same scale, 0 to `end` bytes. */
function spreadChart({ data, inks, peaks }: JobModel, rows: readonly number[], end: number): HTMLElement {
  const canvas = h('canvas.job-spread', { role: 'img' })
  const spread = spreadOf(rows.map((row) => peaks.allocated[row]))
  if (!spread) return canvas
  const [min, lower, median, upper, max] = spread
  const beyond = max > end ? `; the chart ends at ${formatBytes(Math.round(end))}` : ''
  const range = `${formatBytes(min)} to ${formatBytes(max)}, median ${formatBytes(Math.round(median))}${beyond}`
  canvas.setAttribute('aria-label', `Peaks from ${range}`)
  canvas.title = `Peaks: ${range}`
  const ctx = prepareCanvas(canvas, WIDTH, HEIGHT)
  const x = (bytes: number): number => 4 + Math.min(1, bytes / Math.max(1, end)) * (WIDTH - 8)
  const middle = HEIGHT / 2
  ctx.fillStyle = css(inks.line)
  ctx.fillRect(4, HEIGHT - 2, WIDTH - 8, 1)
  ctx.fillStyle = css(inks.soft)
  ctx.fillRect(x(min), middle - 0.5, x(max) - x(min), 1)
  for (const bytes of [min, max]) if (bytes <= end) ctx.fillRect(x(bytes) - 0.5, middle - 4, 1, 8)
  ctx.fillStyle = css(inks.allocated)
  ctx.fillRect(x(lower), middle - 5, Math.max(2, x(upper) - x(lower)), 10)
  ctx.fillStyle = css(inks.ink)
  ctx.fillRect(x(median) - 1, middle - 7, 2, 14)
  for (const row of rows) {
    const peak = peaks.allocated[row]
    if (!(data.bytesAbove[row] > 0 || peak > end)) continue
    ctx.fillStyle = css(data.bytesAbove[row] > 0 ? inks.peak : inks.soft)
    ctx.beginPath()
    if (peak > end) {
      ctx.moveTo(WIDTH - 8, middle - 5)
      ctx.lineTo(WIDTH, middle)
      ctx.lineTo(WIDTH - 8, middle + 5)
    } else ctx.arc(x(peak), middle, 3.5, 0, 2 * Math.PI)
    ctx.fill()
  }
  return canvas
}
