// The table as files and as text for a ticket: sorted and filtered as it stands.

import type { DeviceInfo } from '../../data/model'
import { formatBytes, formatCount } from '../../layout/format'
import { csvLine, inPieces } from '../../ui/download'
import { code, prose } from '../../ui/markdown'
import type { Table } from './columns'

export interface Heading {
  title: string
  device: string
  /** The moment in words. */
  moment: string
  event: number
  allocated: number
  query: string
  grouping: string
}

const TICKET_ROWS = 20

/** One line of names, one for each row. Addresses are hexadecimal text, numbers plain. */
export async function tableCsv({ fields }: Table, order: Int32Array): Promise<string[]> {
  const lines = await inPieces(order.length, (place) => csvLine(fields.map(({ value }) => value(order[place]))))
  return [csvLine(fields.map(({ name }) => name)), ...lines]
}

export async function tableJson({ fields }: Table, order: Int32Array, heading: Heading): Promise<string[]> {
  const { title, device, event, allocated, query, grouping } = heading
  const head = {
    title,
    device,
    moment: { event, allocated },
    query,
    group: grouping,
    totals: record(fields.map(({ name, total }) => [name, total])),
  }
  const rows = await inPieces(
    order.length,
    (place) =>
      `${place === 0 ? '' : ','}\n${JSON.stringify(record(fields.map(({ name, value }) => [name, value(order[place])])))}`,
  )
  return [`${JSON.stringify(head).slice(0, -1)},"rows":[`, ...rows, '\n]}\n']
}

/** The first rows as a table in Markdown under a heading that says what they are. */
export function tableMarkdown({ columns }: Table, order: Int32Array, heading: Heading): string {
  const shown = Math.min(TICKET_ROWS, order.length)
  const lines = [
    `#### ${prose(heading.title)}: ${prose(heading.device)}, ${heading.moment}`,
    '',
    row(columns.map(({ title }) => title)),
    row(columns.map(({ isNumber }) => (isNumber ? '--:' : ':--'))),
    ...Array.from(order.subarray(0, shown), (number) =>
      row(columns.map(({ isNumber, text, whole = text }) => (isNumber ? text(number) : code(whole(number))))),
    ),
    row(columns.map(({ total }, i) => (i === 0 ? '**all rows**' : total ? `**${total}**` : ''))),
    '',
    `${order.length > shown ? `${formatCount(shown)} of ${formatCount(order.length)} rows.` : ''}${heading.query ? ` Query: ${code(heading.query)}` : ''}`.trim(),
  ]
  return `${lines.join('\n').trimEnd()}\n`
}

export function momentWords(info: DeviceInfo, position: number, allocated: number): string {
  const event = position - 1
  const where = info.events === 0 ? 'final state' : event < 0 ? 'before the first event' : `event ${formatCount(event)}`
  return `${event === info.peak_event && info.events > 0 ? 'at the peak, ' : ''}${where}, ${formatBytes(allocated)} allocated`
}

function record(entries: [string, unknown][]): Record<string, unknown> {
  return Object.fromEntries(entries)
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`
}
