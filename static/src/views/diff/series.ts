// A series of snapshots as a table: the totals of each, the bytes of each growing stack, and the growth of all of them.

import { formatBytes } from '../../layout/format'
import type { SeriesDevice } from '../../data/contracts'
import { h } from '../../ui/dom'
import { signed } from './compare'

export function seriesTable(row: SeriesDevice): HTMLElement {
  const cells = (values: readonly number[]): HTMLElement[] => values.map((bytes) => h('td', {}, formatBytes(bytes)))
  return h(
    'details',
    { class: 'diff-series', open: true },
    h(
      'summary',
      {},
      `${row.files.length} snapshots: ${signed(row.slope)} from one to the next (median slope, allocated at the end)`,
    ),
    h(
      'div',
      { class: 'diff-series-table', tabindex: 0, role: 'region', 'aria-label': 'Numbers of the series' },
      h(
        'table',
        {},
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            h('th', { scope: 'col' }, 'Snapshot'),
            ...row.files.map((file) => h('th', { scope: 'col', title: file }, file)),
          ),
        ),
        h(
          'tbody',
          {},
          h('tr', {}, h('th', { scope: 'row' }, 'Peak allocated'), ...cells(row.peak_allocated_bytes)),
          h('tr', {}, h('th', { scope: 'row' }, 'Allocated at the end'), ...cells(row.end_allocated_bytes)),
          h('tr', {}, h('th', { scope: 'row' }, 'Peak reserved'), ...cells(row.peak_reserved_bytes)),
          ...row.stacks
            .filter(({ grows }) => grows)
            .map(({ place, bytes }) => h('tr', {}, h('th', { scope: 'row', title: place }, place), ...cells(bytes))),
        ),
      ),
    ),
  )
}
