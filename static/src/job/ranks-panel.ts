// Every rank as a row: device and host, peaks, first error, group, doubts. Those that failed or are missing are rows too.

import { formatBytes, formatCount, formatMoment } from '../layout/format'
import { button, swatch } from '../ui/controls'
import { h } from '../ui/dom'
import { csvLine, download, fileName } from '../ui/download'
import { isDate, shortPath } from '../ui/format'
import { css, groupColour } from '../views/shared/inks'
import { type JobModel, rangeName } from './job-model'
import type { JobActions } from './job-state'
import { rankLink } from './links'
import type { Panel } from './panel'
import { type ListColumn, SortedList } from './sorted-list'

export class RanksPanel implements Panel {
  readonly element: HTMLElement
  private readonly list: SortedList<number>
  private readonly note = h('p.job-words')
  private readonly clock = h('p.job-words.soft')
  private model: JobModel | null = null

  constructor(
    private readonly actions: JobActions,
    private readonly saved: (text: string) => void,
  ) {
    this.list = new SortedList<number>({
      name: 'job-ranks',
      label: 'Ranks',
      template: '58px 82px 82px 100px 84px 120px 84px 66px minmax(150px, 1fr)',
      width: 826,
      columns: this.columns(),
      onPick: (row) => actions.pickRow(row),
      isPicked: (row) => this.model?.state.row === row,
    })
    const csv = button('CSV', 'Save all rows as CSV', () => this.saveCsv())
    this.element = h('div.column.job-ranks', h('div.row.wrap.job-bar', this.note, csv), this.clock, this.list.element)
  }

  render(model: JobModel): void {
    const { data, state, order } = model
    this.model = model
    const rows = [...order].filter((row) => !state.rows || state.rows.has(row))
    this.note.textContent = countsOf(model, rows)
    this.clock.textContent = data.manifest.clock.sentence
    this.clock.hidden = data.manifest.clock.sentence === ''
    this.list.setItems(rows)
  }

  key(event: KeyboardEvent): boolean {
    return this.list.key(event)
  }

  debug(): unknown {
    return this.list.shown.map((row) => this.model!.data.keyOf(row))
  }

  private columns(): ListColumn<number>[] {
    const data = () => this.model!.data
    const bytes = (key: string, title: string, of: (row: number) => number): ListColumn<number> => ({
      key,
      title,
      isNumber: true,
      value: of,
      cell: (row) => (of(row) > 0 ? formatBytes(of(row)) : '–'),
    })
    const text = (key: string, title: string, of: (row: number) => string): ListColumn<number> => ({
      key,
      title,
      isNumber: false,
      value: of,
      cell: (row) => h('span', { title: of(row) }, of(row)),
    })
    return [
      {
        key: 'rank',
        title: 'Rank',
        isNumber: false,
        value: (row) => data().keyOf(row),
        cell: (row) => rankLink(data(), this.actions, row, data().keyOf(row)),
      },
      bytes('peak', 'Allocated', (row) => this.model!.peaks.allocated[row]),
      bytes('reserved', 'Reserved', (row) => this.model!.peaks.reserved[row]),
      bytes('above', 'Above group', (row) => data().bytesAbove[row]),
      text('oom', 'First OOM', (row) => oomWords(this.model!, row)),
      {
        key: 'group',
        title: 'Group',
        isNumber: false,
        value: (row) => data().group[row],
        cell: (row) => this.groupCell(row),
      },
      text('host', 'Host', (row) => data().hostOf(row)),
      text('device', 'Device', (row) => data().deviceOf(row)),
      text('file', 'File', (row) => stateOf(this.model!, row)),
    ]
  }

  private groupCell(row: number): Node | string {
    const { data, dark } = this.model!
    const group = data.group[row]
    if (group < 0) return '–'
    const { name } = data.manifest.groups[group]
    return h('span', { title: name }, swatch(css(groupColour(group, dark))), name)
  }

  private saveCsv(): void {
    const { model } = this
    if (!model) return
    const { data } = model
    const lines = [
      csvLine([
        'rank',
        'host',
        'device',
        'peak_allocated_bytes',
        'peak_reserved_bytes',
        'bytes_above',
        'group',
        'file',
      ]),
      ...this.list.shown.map((row) =>
        csvLine([
          data.keyOf(row),
          data.hostOf(row),
          data.deviceOf(row),
          data.peakAllocated[row],
          data.peakReserved[row],
          data.bytesAbove[row],
          data.manifest.groups[data.group[row]]?.name ?? '',
          data.sourceOf(row),
        ]),
      ),
    ]
    this.saved(download(`${fileName(document.title, 'ranks')}.csv`, 'text/csv', lines))
  }
}

/** "step 412, 2025-03-01 12:34:56": the time only where it is a date. */
export function oomWords({ data }: JobModel, row: number): string {
  const oom = data.oomOf(row)
  if (!oom) return ''
  const words = oom.step === null ? `event ${formatCount(oom.event)}` : `step ${formatCount(oom.step)}`
  return oom.time_us !== null && isDate(oom.time_us) ? `${words}, ${formatMoment(oom.time_us)}` : words
}

function stateOf({ data }: JobModel, row: number): string {
  if (data.status[row] === 'failed') return `${data.sourceOf(row)}: ${data.error[row]}`
  return data.status[row] === 'missing' ? 'No file was found' : shortPath(data.sourceOf(row))
}

function countsOf({ data, state }: JobModel, rows: readonly number[]): string {
  const of = (status: string): number => rows.filter((row) => data.status[row] === status).length
  const hosts = new Set(rows.map((row) => data.hostOf(row)).filter(Boolean)).size
  const words = [`${formatCount(of('recorded'))} ${state.rows ? 'selected ' : ''}ranks recorded`]
  if (hosts) words[0] += ` on ${formatCount(hosts)} ${hosts === 1 ? 'host' : 'hosts'}`
  if (of('failed')) words.push(`${formatCount(of('failed'))} could not be read`)
  if (of('missing')) words.push(`${formatCount(of('missing'))} missing`)
  const within = state.columns ? ` Peaks are those of ${rangeName(state.axis, ...state.columns)}.` : ''
  return `${words.join(', ')}.${within}`
}
