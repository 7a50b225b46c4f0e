// Ranks grouped by what they hold: the spread of each group, and its outliers with the stacks that set them apart.

import type { JobGroup, JobOutlier } from '../data/contracts'
import { formatBytes } from '../layout/format'
import { fill, h } from '../ui/dom'
import { plural } from '../ui/format'
import { css, groupColour } from '../views/shared/inks'
import { type JobModel, rangeName } from './job-model'
import type { JobActions } from './job-state'
import { linkedSentence, rankLink, stackWords } from './links'
import type { Panel } from './panel'
import { rowsInWords } from './selection'
import { beyondNote } from './beyond-note'
import { spreadChart } from './spread-chart'
import { clippedEnd, medianOf } from './statistics'

/** Stacks named for a group and for an outlier, and outliers, before the rest is counted. */
const STACKS_OF_GROUP = 4
const STACKS_OF_OUTLIER = 5
const OUTLIERS = 12

export class GroupsPanel implements Panel {
  readonly element = h('div', { class: 'job-groups' })
  private drawn = ''

  constructor(private readonly actions: JobActions) {}

  render(model: JobModel): void {
    const { data, state, dark, rows, peaks } = model
    const key = [dark, state.group, state.row, rows.join(), state.columns?.join('-'), state.axis.key].join('/')
    if (key === this.drawn) return
    this.drawn = key
    const { groups } = data.manifest
    const outliers = data.manifest.outliers.filter(({ row }) => !state.rows || state.rows.has(row))
    const where = state.rows ? 'No selected rank is an outlier of its group.' : 'No rank is an outlier of its group.'
    const end = Math.max(1, clippedEnd(peaks.allocated))
    const brushed = rows.map((row) => peaks.allocated[row])
    fill(
      this.element,
      outliers.length === 0 && h('p', { class: 'job-calm' }, where),
      groups.length === 0 && h('p', { class: 'job-calm' }, 'Too few ranks to compare: nothing is grouped.'),
      ...outliers.slice(0, OUTLIERS).map((outlier) => this.outlierCard(model, outlier)),
      outliers.length > OUTLIERS &&
        h('p', { class: 'soft' }, `${outliers.length - OUTLIERS} more outliers; sort the ranks by "Above its group".`),
      state.columns && h('p', { class: 'soft' }, `Peaks are those of ${rangeName(state.axis, ...state.columns)}.`),
      groups.length > 0 && beyondNote('Charts', brushed, end, (index) => data.nameOf(rows[index])),
      ...groups.map((group, index) => this.groupCard(model, group, index, end)),
    )
  }

  /** A group, as far as its ranks are brushed; of one without any, its name alone. */
  private groupCard(model: JobModel, group: JobGroup, index: number, end: number): HTMLElement {
    const { data, state, dark, peaks } = model
    const isBrushed = state.group === index
    const members = group.rows.filter((row) => !state.rows || state.rows.has(row))
    const swatch = h('span', { class: 'swatch', 'aria-hidden': 'true' })
    swatch.style.background = css(groupColour(index, dark))
    const brush = h(
      'button',
      {
        type: 'button',
        class: 'job-group-name',
        'aria-pressed': String(isBrushed),
        title: isBrushed ? 'Show all ranks' : 'Select the ranks of this group',
        onclick: () => this.actions.brushGroup(isBrushed ? null : index),
      },
      swatch,
      group.name,
    )
    const isWhole = members.length === group.rows.length
    if (members.length === 0) {
      const none = h('span', { class: 'soft' }, `${plural(group.rows.length, 'rank')}, none selected`)
      return h('section', { class: 'job-group' }, h('header', {}, brush, none))
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
      'section',
      { class: 'job-group' },
      h('header', {}, brush, h('span', { class: 'soft' }, `${count}, ${spread}`), spreadChart(model, members, end)),
      ranks !== group.name && h('p', { class: 'job-group-ranks' }, ranks),
      isWhole && group.holds !== '' && h('p', {}, capital(group.holds)),
      stacks.length > 0 &&
        h(
          'ul',
          { class: 'job-holds', 'aria-label': `Largest stacks, median of ${isWhole ? 'the group' : 'these ranks'}` },
          ...stacks.map(([stack, size]) =>
            h('li', {}, h('span', { class: 'number' }, formatBytes(size)), ...stackWords(data, this.actions, stack)),
          ),
        ),
      outliers.length > 0 &&
        h('p', {}, outliers.length === 1 ? 'Outlier: ' : 'Outliers: ', ...this.outlierLinks(model, outliers)),
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

  private outlierCard({ data, state }: JobModel, outlier: JobOutlier): HTMLElement {
    const { row, sentence, stacks } = outlier
    return h(
      'article',
      { class: row === state.row ? 'job-outlier picked' : 'job-outlier' },
      h('h2', {}, linkedSentence(data, this.actions, sentence)),
      outlierStacks(data, this.actions, stacks.slice(0, STACKS_OF_OUTLIER)),
    )
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
    'ul',
    { class: 'job-holds', 'aria-label': 'Stacks that make the difference' },
    ...stacks.map(([stack, above, bytes, expected]) =>
      h(
        'li',
        { title: `${formatBytes(bytes)}, where its group has ${formatBytes(expected)}` },
        h('span', { class: 'number above' }, `${above < 0 ? '−' : '+'}${formatBytes(Math.abs(above))}`),
        ...stackWords(data, actions, stack),
      ),
    ),
  )
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}
