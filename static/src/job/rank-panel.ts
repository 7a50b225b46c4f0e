// One rank: its numbers, its curves against its group, its bytes above the expected ones, and its own full report.

import { formatBytes, formatCount } from '../layout/format'
import { fill, h } from '../ui/dom'
import { capital, formatChange, formatShare, plural, shortPath } from '../ui/format'
import { FONT, prepareCanvas } from '../views/shared/canvas-view'
import { css } from '../views/shared/inks'
import { outlierStacks } from './groups-panel'
import { fitOf } from './statistics'
import { type JobModel, rangeName } from './job-model'
import type { JobActions } from './job-state'
import { linkedSentence, stackWords } from './links'
import type { Panel } from './panel'
import { oomWords } from './ranks-panel'

const STACKS = 12
const CHART_HEIGHT = 110
/** Differences from the group below this share of the rank's peak are noise. */
const TELLING = 0.001

/** Whether a row has no other to be compared with. */
function isAlone(data: JobModel['data'], row: number): boolean {
  return (data.groups[data.group[row]]?.rows.length ?? 1) < 2
}

export class RankPanel implements Panel {
  readonly element = h('div.job-rank')
  private readonly chart = h('canvas', { role: 'img' })
  private drawn = ''

  constructor(private readonly actions: JobActions) {
    new ResizeObserver(() => (this.drawn = '')).observe(this.element)
  }

  render(model: JobModel): void {
    const { state, dark } = model
    const { row } = state
    if (row === null) return fill(this.element, h('p.soft', 'Pick a rank in the map.'))
    const key = [row, state.column, state.axis.key, dark, this.element.clientWidth].join()
    if (key === this.drawn) return
    this.drawn = key
    fill(this.element, ...this.parts(model, row))
    this.drawChart(model, row)
  }

  private parts(model: JobModel, row: number): (Node | null)[] {
    const { data, state } = model
    const heading = h(
      'header.row.wrap.job-bar',
      h('h2', data.nameOf(row)),
      h('button', { onclick: () => this.actions.pickRow(null) }, 'Close'),
    )
    if (row >= data.recorded) {
      const text =
        data.status[row] === 'failed'
          ? `${data.sourceOf(row)} could not be read: ${data.error[row]}`
          : 'No file of this rank was found.'
      return [heading, h('p.notice', text)]
    }
    const outlier = data.manifest.outliers.find((one) => one.row === row)
    const doubts = data.trusted[row] ? [] : ['This recording has gaps.']
    const column = state.column === null ? null : h('p.soft', this.columnWords(model, row, state.column))
    return [
      heading,
      this.reports(model, row),
      ...doubts.map((text) => h('p.notice', text)),
      outlier ? h('p', linkedSentence(data, this.actions, outlier.sentence)) : null,
      outlier ? outlierStacks(data, this.actions, outlier.stacks) : null,
      this.facts(model, row),
      this.chart,
      column,
      h('h3', isAlone(data, row) ? 'Largest stacks at its peak' : 'Largest stacks at its peak, against its group'),
      this.stacks(model, row),
    ]
  }

  private reports({ data }: JobModel, row: number): HTMLElement | null {
    const inside = data.manifest.detail.find((detail) => detail.row === row)
    const address = data.manifest.links[row]
    const link =
      address !== '' && h('a', { href: address, target: '_blank', rel: 'noreferrer' }, `Its own report: ${address}`)
    if (inside) {
      return h(
        'p.row.wrap',
        h('button.job-open', { onclick: () => this.actions.openDevice(inside.device) }, 'Open its timeline'),
        link,
      )
    }
    return link
      ? h('p', link)
      : h(
          'p.soft',
          `Its timeline is not in this file. snapreport job --detail ${data.rank[row]} adds it; --each DIR writes one report per rank.`,
        )
  }

  private facts(model: JobModel, row: number): HTMLElement {
    const { data } = model
    const facts: [string, string][] = [
      ['Peak allocated', formatBytes(data.peakAllocated[row])],
      ['Peak reserved', formatBytes(data.peakReserved[row])],
      ['Allocated at the end', formatBytes(data.endAllocated[row])],
      ['Group', data.manifest.groups[data.group[row]]?.name ?? ''],
      ['State', data.manifest.states[row] ?? ''],
      ['First OOM', oomWords(model, row)],
      ['Device', [data.hostOf(row), data.deviceOf(row)].filter(Boolean).join(' · ')],
      ['Device memory', data.capacity[row] > 0 ? formatBytes(data.capacity[row]) : ''],
      ['Recording', `${plural(data.events[row], 'event')}, ${plural(data.steps[row], 'step')}`],
      ['File', shortPath(data.sourceOf(row))],
      ['Rank known from', data.rankSourceOf(row)],
    ]
    const list = h('dl')
    for (const [name, text] of facts) if (text) list.append(h('dt', name), h('dd', text))
    return list
  }

  /** The largest of this rank, and those that differ most from what its group predicts. */
  private stacks({ data }: JobModel, row: number): HTMLElement {
    const group = data.groups[data.group[row]] ?? { rows: [row], isSlope: false }
    const ranks = group.rows.map((other) => data.rank[other])
    const peak = data.peakAllocated[row]
    const rows = Array.from({ length: data.stackMax.length }, (_, stack) => {
      const bytes = data.bytesOfStack(stack, row)
      const memberBytes = group.rows.map((other) => data.bytesOfStack(stack, other))
      const expected = Math.max(0, Math.round(fitOf(ranks, memberBytes, group.isSlope)(data.rank[row])))
      return { stack, bytes, above: bytes - expected }
    })
      .filter(({ bytes, above }) => bytes > 0 || above < -TELLING * peak)
      .sort((a, b) => Math.max(b.bytes, -b.above) - Math.max(a.bytes, -a.above))
      .slice(0, STACKS)
    return h(
      'ul.job-holds',
      ...rows.map(({ stack, bytes, above }) =>
        h(
          'li',
          h('span.number', formatBytes(bytes)),
          h('span.number.soft', formatShare(bytes, peak)),
          isAlone(data, row)
            ? null
            : h(
                'span',
                { class: above > TELLING * peak ? 'number above' : 'number soft' },
                Math.abs(above) > TELLING * peak ? formatChange(above) : 'as others',
              ),
          ...stackWords(data, this.actions, stack),
        ),
      ),
    )
  }

  private columnWords({ data, state }: JobModel, row: number, column: number): string {
    const parts = (['allocated', 'reserved'] as const).map((metric) => {
      const { columns, bytes } = data.matrix(state.axis.key, metric)
      const value = bytes[row * columns + column]
      return Number.isNaN(value) ? null : `up to ${formatBytes(value)} ${metric}`
    })
    const known = parts.filter((word) => word !== null)
    return `${capital(rangeName(state.axis, column))}: ${known.length ? known.join(', ') : 'nothing recorded'}.`
  }

  /** Allocated and reserved of the rank over the axis of the map, and what is expected in its group. */
  private drawChart({ data, state, inks }: JobModel, row: number): void {
    const width = Math.max(160, Math.min(720, this.element.clientWidth - 28))
    if (row >= data.recorded) return
    const ctx = prepareCanvas(this.chart, width, CHART_HEIGHT)
    ctx.font = FONT
    const { columns } = state.axis
    const of = (metric: 'allocated' | 'reserved'): Float64Array =>
      data.matrix(state.axis.key, metric).bytes.subarray(row * columns, (row + 1) * columns)
    const allocated = of('allocated')
    const reserved = of('reserved')
    // Where the rank recorded nothing, its group is no expectation: with clocks that differ, others were elsewhere.
    const expected =
      data.group[row] >= 0 && !isAlone(data, row)
        ? data
            .expected(state.axis.key, 'allocated')
            .subarray(row * columns, (row + 1) * columns)
            .map((bytes, column) => (Number.isNaN(allocated[column]) ? NaN : bytes))
        : null
    const most = Math.max(
      1,
      ...[...allocated, ...reserved, ...(expected ?? [])].filter((value) => !Number.isNaN(value)),
    )
    const [top, bottom] = [16, CHART_HEIGHT - 4]
    const x = (column: number): number => (column / columns) * width
    const y = (bytes: number): number => bottom - (bytes / most) * (bottom - top)
    ctx.fillStyle = css(inks.allocated, 0.45)
    allocated.forEach((bytes, column) => {
      if (!Number.isNaN(bytes)) ctx.fillRect(x(column), y(bytes), x(column + 1) - x(column), bottom - y(bytes))
    })
    const line = (values: Float64Array, colour: string, dash: number[]): void => {
      ctx.strokeStyle = colour
      ctx.setLineDash(dash)
      ctx.lineWidth = 1.5
      ctx.beginPath()
      let isOpen = false
      values.forEach((bytes, column) => {
        if (Number.isNaN(bytes)) {
          isOpen = false
          return
        }
        if (!isOpen) ctx.moveTo(x(column), y(bytes))
        ctx.lineTo(x(column), y(bytes))
        ctx.lineTo(x(column + 1), y(bytes))
        isOpen = true
      })
      ctx.stroke()
      ctx.setLineDash([])
    }
    line(reserved, css(inks.reserved), [])
    if (expected) line(expected, css(inks.ink), [4, 3])
    if (state.column !== null) {
      ctx.fillStyle = css(inks.accent)
      ctx.fillRect(Math.round(x(state.column + 0.5)), top, 1.5, bottom - top)
    }
    ctx.fillStyle = css(inks.soft)
    ctx.textBaseline = 'top'
    const dashed = expected ? ', median of its group (dashed)' : ''
    ctx.fillText(`up to ${formatBytes(most)}: allocated (area), reserved (line)${dashed}`, 0, 0)
    this.chart.setAttribute(
      'aria-label',
      `Allocated and reserved over ${formatCount(columns)} columns, up to ${formatBytes(most)}`,
    )
  }
}
