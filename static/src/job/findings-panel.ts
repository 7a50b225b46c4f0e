// What was found: ranks that are outliers of their groups with the stacks that set them apart, and the findings of all ranks,
// each once: "on 61 of 64 ranks".

import type { JobFinding, JobOutlier } from '../data/contracts'
import { formatCount } from '../layout/format'
import { fill, h } from '../ui/dom'
import { outlierStacks } from './groups-panel'
import type { JobModel } from './job-model'
import { type JobActions, rowsInWords } from './job-state'
import { linkedSentence, rankLink } from './links'
import type { Panel } from './panel'

const SEVERITY: Record<JobFinding['severity'], string> = { error: 'Error', warning: 'Warning', info: 'Note' }
/** Outliers before the rest is counted, and stacks named for each. */
const OUTLIERS = 12
const STACKS_OF_OUTLIER = 5

export class FindingsPanel implements Panel {
  readonly element = h('div.job-findings')
  private drawn = ''

  constructor(private readonly actions: JobActions) {}

  render(model: JobModel): void {
    const { data, state } = model
    // Where some ranks are brushed, only their findings.
    const shown = data.manifest.findings.filter(({ rows }) => !state.rows || rows.some((row) => state.rows!.has(row)))
    const outliers = data.manifest.outliers.filter(({ row }) => !state.rows || state.rows.has(row))
    const key = `${state.row}/${shown.map((finding) => data.manifest.findings.indexOf(finding)).join()}/${[...(state.rows ?? [])].join()}`
    if (key === this.drawn) return
    this.drawn = key
    const where = state.rows ? 'on the selected ranks' : 'on any rank'
    fill(
      this.element,
      outliers.length === 0 && h('p.soft', `${state.rows ? 'No selected' : 'No'} rank is an outlier of its group.`),
      ...outliers.slice(0, OUTLIERS).map((outlier) => this.outlierCard(model, outlier)),
      outliers.length > OUTLIERS &&
        h('p.soft', `${outliers.length - OUTLIERS} more outliers; sort the ranks by "Above its group".`),
      shown.length === 0 && h('p.soft', `Nothing was found ${where}.`),
      ...shown.map((finding) => this.card(model, finding)),
    )
  }

  private card({ data }: JobModel, finding: JobFinding): HTMLElement {
    const { severity, title, detail, rows, row, where } = finding
    const certainty = finding.confidence
    const on = where ?? `on ${formatCount(rows.length)} of ${formatCount(data.recorded)} ranks`
    return h(
      'article',
      { class: `job-finding ${severity}` },
      h(
        'h2',
        h('b', `${SEVERITY[severity] ?? 'Note'}: `),
        linkedSentence(data, this.actions, title),
        certainty ? h('small.soft', ` ${certainty}`) : null,
      ),
      h(
        'p.row.wrap.job-bar',
        h('button', { title: 'Select these ranks', onclick: () => this.actions.brush(rows, null) }, on),
        rows.length > 1 && rows.length < data.recorded && h('span.soft', rowsInWords(data, rows)),
        row != null && h('span.soft', 'The numbers are those of ', rankLink(data, this.actions, row), '.'),
      ),
      ...detail.map((line) => h('p', linkedSentence(data, this.actions, line))),
    )
  }
  private outlierCard({ data, state }: JobModel, { row, sentence, stacks }: JobOutlier): HTMLElement {
    return h(
      'article',
      { class: row === state.row ? 'job-outlier picked' : 'job-outlier' },
      h('h2', linkedSentence(data, this.actions, sentence)),
      outlierStacks(data, this.actions, stacks.slice(0, STACKS_OF_OUTLIER)),
    )
  }
}
