// The controls of the table: what a row stands for, whether only matches are listed, and the files.

import type { DeviceData, DeviceInfo } from '../../data/model'
import { button } from '../../ui/controls'
import { fill, h, setText } from '../../ui/dom'
import { RANGE, type Store } from '../../ui/state'
import { MatchesOnly } from '../shared/controls'
import { GROUPINGS, type Grouping, whyNot } from './grouping'

interface TableActions {
  save(format: 'csv' | 'json'): void
  copy(): void
}

export class TableTools {
  readonly element: HTMLElement
  private readonly menu = h('select', { 'aria-label': 'Rows', title: 'What a row stands for' })
  private readonly only: MatchesOnly
  private readonly filter = h('input.table-filter', {
    type: 'search',
    placeholder: 'Filter rows',
    'aria-label': 'Filter rows by their name',
    title: 'Rows whose name contains these words',
  })
  private readonly range = h('input', { type: 'checkbox' })
  private readonly rangeName = h('span')
  /** What the menu's entries are for. */
  private data: DeviceData | null = null

  constructor(
    private readonly store: Store,
    actions: TableActions,
  ) {
    this.only = new MatchesOnly((isOn) => store.setOption('table.matches', isOn ? null : 'all'))
    this.filter.addEventListener('input', () => store.setOption('table.filter', this.filter.value || null))
    this.range.addEventListener('change', () => store.setOption('table.range', this.range.checked ? 'window' : null))
    this.menu.addEventListener('change', () => this.group(this.menu.value as Grouping))
    this.element = h(
      'div.row.wrap.table-tools',
      this.menu,
      this.filter,
      h(
        'label.switch',
        { title: 'What the events of the selected range allocate and free, or those of the window' },
        this.range,
        this.rangeName,
      ),
      this.only.element,
      button('CSV', 'Download the table as CSV', () => actions.save('csv')),
      button('JSON', 'Download the table as JSON', () => actions.save('json')),
      button('Markdown', 'Copy the first rows for a ticket', () => actions.copy()),
    )
  }

  /** `matchesOnly`: null where there is no query. */
  render(info: DeviceInfo, data: DeviceData, grouping: Grouping, matchesOnly: boolean | null, isRange: boolean): void {
    if (data !== this.data) {
      fill(
        this.menu,
        ...GROUPINGS.map(([name, label]) => {
          const reason = whyNot(name, info, data)
          return h('option', { value: name, disabled: reason !== null }, reason ? `${label} (${reason})` : label)
        }),
      )
      this.data = data
    }
    this.menu.value = grouping
    this.only.render(matchesOnly)
    this.range.checked = isRange
    setText(this.rangeName, RANGE in this.store.state.options ? 'Sum the range' : 'Sum the window')
    this.range.disabled = info.events === 0
    if (document.activeElement !== this.filter) this.filter.value = this.store.state.options['table.filter'] ?? ''
  }

  private group(grouping: Grouping): void {
    const { 'table.open': _, 'table.sort': __, ...rest } = this.store.state.options
    this.store.set({ options: { ...rest, 'table.group': grouping } })
  }
}
