// The lines above the table: the query with what can be done about it, and how many allocations and bytes are listed.

import { formatBytes, formatCount } from '../../layout/format'
import type { DeviceData } from '../../data/model'
import { explain } from '../../ui/devices'
import { copyText, fill, h, setText } from '../../ui/dom'
import { plural } from '../../ui/format'
import { Memo } from '../memo'
import { WithoutButton } from '../shared/controls'
import type { ViewContext, ViewParts } from '../view'
import { total } from './sums'
import type { Model } from './table-model'

const LEFT_OUT: Record<string, string> = {
  addr_lo: 'addresses',
  stream: 'streams',
  pool: 'pools',
  times: 'times',
  requested: 'when each free was requested',
}

export class TableWords {
  readonly query = h('p.table-query', { hidden: true })
  readonly note = h('p.table-words', { role: 'status' })
  private readonly sizes = new Memo<number>()
  private readonly without: WithoutButton

  constructor(private readonly parts: ViewParts) {
    this.without = new WithoutButton(parts.store)
  }

  render(context: ViewContext, model: Model): void {
    const { info, data, matches } = context
    const rows = model.grouping === 'allocation' ? '' : ` in ${plural(model.plan.order.length, model.word)}`
    const bytes = matches
      ? matches.bytes
      : model.sums
        ? total(model.sums.bytes)
        : this.sizes.get([data.size], () => total(data.size))
    const listed = model.filter || model.range ? listedIn(model, data) : null
    const left = info.left_out.filter((name) => LEFT_OUT[name]).map((name) => LEFT_OUT[name])
    const count = listed ?? matches
    setText(
      this.note,
      (count
        ? `${formatCount(count.count)} of ${plural(info.allocations, 'allocation')}, `
        : `${plural(info.allocations, 'allocation')}, `) +
        `${formatBytes(listed?.bytes ?? bytes)}${rows}${left.length ? `. Not in this report: ${left.join(', ')}` : ''}`,
    )
    this.showQuery(context)
  }

  private showQuery({ state: { query }, info, data, stacks, matches }: ViewContext): void {
    this.query.hidden = query === ''
    if (!query) return
    const { store, announce } = this.parts
    const link = (label: string, run: () => void): HTMLButtonElement => h('button.link', { onclick: run }, label)
    fill(
      this.query,
      'Query ',
      h('code', query),
      ' ',
      link('Copy', () => void copyText(query).then(() => announce('Query copied'))),
      ' ',
      link('Clear', () => store.set({ query: '' })),
      ' ',
      this.without.element,
    )
    const label = /^stack:\d+$/.test(query) ? 'Without this stack' : 'Without these'
    this.without.render(matches?.count ? query : null, label, info, data, stacks)
  }
}

/** What the filter and the window leave. */
function listedIn({ sums, plan: { order } }: Model, { size }: DeviceData): { count: number; bytes: number } {
  if (!sums) return { count: order.length, bytes: order.reduce((sum, id) => sum + size[id], 0) }
  return {
    count: order.reduce((sum, group) => sum + sums.count[group], 0),
    bytes: order.reduce((sum, group) => sum + sums.bytes[group], 0),
  }
}

export function whyEmpty({ info, matches }: ViewContext, { filter, range }: Model): string {
  if (filter) return `No row has a name with “${filter}”.`
  if (range && info.allocations > 0) return 'Nothing is allocated within the range.'
  if (info.allocations === 0) return explain(info) ?? 'This device has no allocations.'
  return matches
    ? `None of the ${formatCount(info.allocations)} allocations matches the query.`
    : 'There is nothing to list.'
}
