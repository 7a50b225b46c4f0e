// Ranks grouped by what they hold: the spread of each group, and the ranks that stand out of it with the stacks that make them do so.

import type { JobGroup, JobOutlier } from '../data/job-manifest'
import { formatBytes } from '../layout/format'
import { fill, h } from '../ui/dom'
import { plural } from '../ui/format'
import { css, groupColour } from '../views/shared/inks'
import type { JobModel } from './job-model'
import type { JobActions } from './job-state'
import { linkedSentence, rankLink, stackLink } from './links'
import type { Panel } from './panel'
import { rowsInWords } from './selection'
import { beyondNote } from './beyond-note'
import { spreadChart } from './spread-chart'
import { clippedEnd } from './statistics'

/** Stacks named for a group and for an outlier, and outliers, before the rest is counted. */
const STACKS_OF_GROUP = 4
const STACKS_OF_OUTLIER = 5
const OUTLIERS = 12

export class GroupsPanel implements Panel {
  readonly element = h('div', { class: 'job-groups' })
  private drawn = ''

  constructor(private readonly actions: JobActions) {}

  render(model: JobModel): void {
    const { data, state, dark } = model
    const key = `${dark}/${state.group}/${state.row}/${state.rows?.size}`
    if (key === this.drawn) return
    this.drawn = key
    const { groups, outliers } = data.manifest
    const end = Math.max(1, clippedEnd(data.peakAllocated))
    const nothing = outliers.length === 0 ? 'No rank stands out of its group.' : null
    fill(
      this.element,
      nothing && h('p', { class: 'job-calm' }, nothing),
      groups.length === 0 && h('p', { class: 'job-calm' }, 'Too few ranks to compare: nothing is grouped.'),
      ...outliers.slice(0, OUTLIERS).map((outlier) => this.outlierCard(model, outlier)),
      outliers.length > OUTLIERS &&
        h('p', { class: 'soft' }, `${outliers.length - OUTLIERS} more stand out; sort the ranks by "Above its group".`),
      groups.length > 0 && beyondNote('Charts', data.peakAllocated, end, (row) => data.nameOf(row)),
      ...groups.map((group, index) => this.groupCard(model, group, index, end)),
    )
  }

  private groupCard(model: JobModel, group: JobGroup, index: number, end: number): HTMLElement {
    const { data, state, dark } = model
    const isBrushed = state.group === index
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
    const outliers = data.manifest.outliers.filter((outlier) => outlier.group === index)
    const [min, max] = [group.min_bytes, group.max_bytes].map(formatBytes)
    const many = min === max ? `each peaks at ${max}` : `peaks from ${min} to ${max}`
    const spread = group.rows.length === 1 ? `peak ${max}` : many
    const ranks = capital(rowsInWords(data, group.rows))
    return h(
      'section',
      { class: 'job-group' },
      h(
        'header',
        {},
        brush,
        h('span', { class: 'soft' }, `${plural(group.rows.length, 'rank')}, ${spread}`),
        spreadChart(model, group.rows, end),
      ),
      ranks !== group.name && h('p', { class: 'job-group-ranks' }, ranks),
      group.holds !== '' && h('p', {}, capital(group.holds)),
      group.stacks.length > 0 &&
        h(
          'ul',
          { class: 'job-holds', 'aria-label': 'Largest stacks, median of the group' },
          ...group.stacks
            .slice(0, STACKS_OF_GROUP)
            .map(([stack, bytes]) =>
              h('li', {}, h('span', { class: 'number' }, formatBytes(bytes)), stackLink(data, this.actions, stack)),
            ),
        ),
      outliers.length > 0 && h('p', {}, 'Stands out: ', ...this.outlierLinks(model, outliers)),
    )
  }

  private outlierLinks({ data }: JobModel, outliers: readonly JobOutlier[]): (Node | string)[] {
    const links = outliers
      .slice(0, OUTLIERS)
      .flatMap(({ row }, i) => [i ? ', ' : '', rankLink(data, this.actions, row)])
    return outliers.length > OUTLIERS ? [...links, ` and ${outliers.length - OUTLIERS} more`] : links
  }

  private outlierCard({ data, state }: JobModel, outlier: JobOutlier): HTMLElement {
    const { row, bytes_above, sentence, stacks } = outlier
    const groupName = data.manifest.groups[outlier.group]?.name ?? 'all ranks'
    return h(
      'article',
      { class: row === state.row ? 'job-outlier picked' : 'job-outlier' },
      h(
        'h3',
        {},
        rankLink(data, this.actions, row),
        ` holds ${formatBytes(bytes_above)} more than its group (${groupName})`,
      ),
      sentence && h('p', {}, linkedSentence(data, this.actions, sentence)),
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
        stackLink(data, actions, stack),
      ),
    ),
  )
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}
