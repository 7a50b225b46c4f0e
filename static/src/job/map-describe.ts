// What is under the pointer of the map, in words.

import { formatBytes, formatCount } from '../layout/format'
import { capital } from '../ui/format'
import type { Line } from '../views/shared/describe'
import { type HeatMatrix, METRICS } from './job-data'
import { type JobModel, METRIC_NAMES, rangeName } from './job-model'
import { spreadOf } from './statistics'

export function describeCell(model: JobModel, row: number, column: number): Line[] {
  const { data, state } = model
  const { axis } = state
  const lines: Line[] = [{ kind: 'title', text: `${titleOf(model, row)}, ${rangeName(axis, column)}` }]
  if (row >= data.recorded) return [...lines, absentLine(model, row)]
  let isKnown = false
  for (const metric of METRICS) {
    if (metric === 'free' && !(data.capacity[row] > 0)) continue
    const { columns, bytes } = data.matrix(axis.key, metric)
    const value = bytes[row * columns + column]
    if (Number.isNaN(value)) continue
    isKnown = true
    const above = metric === state.metric ? aboveGroup(model, row, column, value) : ''
    // Each is the extreme of its cell, at moments of its own: they need not add up.
    const limit = metric === 'free' ? 'at least' : 'up to'
    lines.push({ kind: 'plain', text: `${METRIC_NAMES[metric]}: ${limit} ${formatBytes(value)}${above}` })
  }
  if (!isKnown) lines.push({ kind: 'plain', text: 'Nothing was recorded here.' })
  return [...lines, ...rowLines(model, row)]
}

export function describeRow(model: JobModel, row: number): Line[] {
  const { data } = model
  const lines: Line[] = [{ kind: 'title', text: titleOf(model, row) }]
  if (row >= data.recorded) return [...lines, absentLine(model, row)]
  lines.push({
    kind: 'plain',
    text: `Peak: ${formatBytes(data.peakAllocated[row])} allocated, ${formatBytes(data.peakReserved[row])} reserved`,
  })
  return [...lines, ...rowLines(model, row)]
}

/** The spread of the brushed rows in a column of the shown matrix. */
export function describeColumn(model: JobModel, { columns, bytes }: HeatMatrix, column: number): Line[] {
  const { state, rows } = model
  const lines: Line[] = [{ kind: 'title', text: capital(rangeName(state.axis, column)) }]
  const values = rows.map((row) => bytes[row * columns + column])
  const spread = spreadOf(values)
  if (!spread) return [...lines, { kind: 'plain', text: 'Nothing was recorded here.' }]
  const most = rows[values.indexOf(spread[4])]
  const known = values.filter((value) => !Number.isNaN(value)).length
  if (known < rows.length)
    lines.push({ kind: 'soft', text: `Recorded by ${formatCount(known)} of ${formatCount(rows.length)} ranks` })
  lines.push({ kind: 'plain', text: `Median: ${formatBytes(Math.round(spread[2]))}` })
  lines.push({ kind: 'plain', text: `Lowest: ${formatBytes(spread[0])}` })
  lines.push({ kind: 'plain', text: `Highest: ${formatBytes(spread[4])}, ${model.data.nameOf(most)}` })
  return lines
}

function titleOf({ data }: JobModel, row: number): string {
  return [data.nameOf(row), data.hostOf(row), data.deviceOf(row)].filter(Boolean).join(' · ')
}

function rowLines({ data }: JobModel, row: number): Line[] {
  const lines: Line[] = []
  const group = data.manifest.groups[data.group[row]]
  if (group) lines.push({ kind: 'soft', text: `Group: ${group.name}` })
  if (data.bytesAbove[row] > 0) {
    lines.push({ kind: 'soft', text: `Outlier: ${formatBytes(data.bytesAbove[row])} above its group` })
  }
  const oom = data.oomOf(row)
  if (oom) lines.push({ kind: 'soft', text: `Ran out of memory${oom.step === null ? '' : ` at step ${oom.step}`}` })
  return lines
}

function absentLine({ data }: JobModel, row: number): Line {
  const text = data.status[row] === 'failed' ? `Could not be read: ${data.error[row]}` : 'No file was found.'
  return { kind: 'plain', text }
}

/** ", 1.2 GiB above the median of its group": nothing where the two are within a thousandth. */
function aboveGroup({ data, state }: JobModel, row: number, column: number, value: number): string {
  const group = data.groups[data.group[row]]
  if (!group || group.rows.length < 2) return ''
  const expected = data.expected(state.axis.key, state.metric)[row * state.axis.columns + column]
  const above = value - expected
  if (!(Math.abs(above) > 0.001 * Math.max(expected, value))) return ''
  const what = group.isSlope ? "its group's slope" : "its group's median"
  return `, ${formatBytes(Math.round(Math.abs(above)))} ${above > 0 ? 'above' : 'below'} ${what}`
}
