// A job as the page works with it: typed columns by row, and matrices of bytes by row and column of an axis.
//
// Rows 0 … recorded-1 are recordings; the rows behind them are ranks that failed or that no file has, without numbers.

import type { DecodedBlob } from '../data/columns'
import type { JobAxis, JobManifest } from '../data/contracts'
import { fitOf } from './statistics'
import { remembered } from '../data/remembered'

export const METRICS = ['allocated', 'reserved', 'unused', 'free'] as const
export type Metric = (typeof METRICS)[number]
export type RowStatus = 'recorded' | 'failed' | 'missing'

/** Bytes by row and column, row-major; NaN where nothing is known. */
export interface HeatMatrix {
  rows: number
  columns: number
  bytes: Float64Array
}

export class JobData {
  /** Rows with numbers. */
  readonly recorded: number
  /** All rows. */
  readonly rows: number
  /** Rank number; -1: not known. */
  readonly rank: Int32Array
  readonly status: readonly RowStatus[]
  readonly error: readonly string[]
  /** Index into the manifest's groups; -1: none. */
  readonly group: Int32Array
  /** Of the manifest; a slope is what pipeline stages have. */
  readonly groups: readonly { rows: readonly number[]; isSlope: boolean }[]
  readonly peakAllocated: Float64Array
  readonly peakReserved: Float64Array
  readonly endAllocated: Float64Array
  /** Bytes of the device; 0: unknown. */
  readonly capacity: Float64Array
  readonly outside: Float64Array
  readonly ooms: Uint32Array
  readonly bytesAbove: Float64Array
  readonly cluster: Uint32Array
  readonly events: Uint32Array
  readonly steps: Uint32Array
  readonly trusted: Uint8Array
  /** Bytes of a category at each row's peak: [category * recorded + row]. */
  readonly categoryBytes: Float64Array
  readonly stackMax: Float64Array
  /** The row that holds most of each stack: bytes of stacks are stored in 4,095 levels, which several ranks may share. */
  readonly stackMaxRow: Uint32Array
  readonly stackCategory: Uint8Array
  private readonly host: Uint32Array
  private readonly device: Int32Array
  private readonly kind: Uint8Array
  private readonly rankSource: Uint8Array
  private readonly stackBytes: Uint16Array
  private readonly matrices = new Map<string, HeatMatrix>()
  private readonly expectations = new Map<string, Float64Array>()
  private readonly keys: string[]
  private readonly rowOfKey = new Map<string, number>()
  private readonly firstOom = new Map<number, JobManifest['ooms'][number]>()

  constructor(
    readonly manifest: JobManifest,
    columns: DecodedBlob,
    private readonly heat: DecodedBlob,
  ) {
    const recorded = manifest.ranks
    const absent = [
      ...manifest.failed.map(({ rank, error }) => ({ rank: rank ?? -1, status: 'failed' as const, error })),
      ...manifest.missing.map((rank) => ({ rank, status: 'missing' as const, error: '' })),
    ]
    const rows = recorded + absent.length
    this.recorded = recorded
    this.rows = rows
    this.rank = new Int32Array(rows)
    this.rank.set(columns.i32('job.rank'))
    for (const [i, { rank }] of absent.entries()) this.rank[recorded + i] = rank
    this.status = [...Array<RowStatus>(recorded).fill('recorded'), ...absent.map(({ status }) => status)]
    this.error = [...Array<string>(recorded).fill(''), ...absent.map(({ error }) => error)]
    this.group = new Int32Array(rows).fill(-1)
    this.group.set(columns.i32('job.group'))
    this.groups = manifest.groups.map(({ rows, slope_bytes_per_rank }) => ({ rows, isSlope: !!slope_bytes_per_rank }))
    const numbers = (name: string): Float64Array => {
      const out = new Float64Array(rows)
      out.set(columns.f64(name))
      return out
    }
    const wholes = (name: string): Uint32Array => {
      const out = new Uint32Array(rows)
      out.set(columns.u32(name))
      return out
    }
    this.peakAllocated = numbers('job.peak_allocated')
    this.peakReserved = numbers('job.peak_reserved')
    this.endAllocated = numbers('job.end_allocated')
    this.capacity = numbers('job.capacity')
    this.outside = numbers('job.outside')
    this.bytesAbove = numbers('job.bytes_above')
    this.ooms = wholes('job.ooms')
    this.cluster = wholes('job.cluster')
    this.events = wholes('job.events')
    this.steps = wholes('job.steps')
    this.trusted = columns.u8('job.trusted')
    this.host = columns.u32('job.host')
    this.device = columns.i32('job.device')
    this.kind = columns.u8('job.kind')
    this.rankSource = columns.u8('job.rank_source')
    this.categoryBytes = columns.f64('job.category_bytes')
    this.stackMax = columns.f64('job.stack_max')
    this.stackMaxRow = columns.u32('job.stack_max_row')
    this.stackCategory = columns.u8('job.stack_category')
    this.stackBytes = columns.u16('job.stack_bytes')
    for (let row = recorded; row < rows; row++) this.cluster[row] = row
    this.keys = keysOf(this.rank)
    for (const [row, key] of this.keys.entries()) this.rowOfKey.set(key, row)
    for (const oom of manifest.ooms) if (!this.firstOom.has(oom.row)) this.firstOom.set(oom.row, oom)
  }

  axis(key: string | undefined): JobAxis {
    return this.manifest.axes.find((axis) => axis.key === key) ?? this.manifest.axes[0]
  }

  /** The name of a row in the address: its rank number, followed by ".2" for the second recording of a rank. */
  keyOf(row: number): string {
    return this.keys[row]
  }

  rowOf(key: string | undefined): number | null {
    return key === undefined ? null : (this.rowOfKey.get(key) ?? null)
  }

  /** "Rank 37"; with the file's name where a rank has several recordings. */
  nameOf(row: number): string {
    const key = this.keys[row]
    if (this.rank[row] < 0) return row < this.recorded ? this.manifest.sources[row] : 'A file without a rank'
    return key.includes('.') || this.rowOfKey.has(`${key}.2`)
      ? `Rank ${this.rank[row]} (${this.sourceOf(row)})`
      : `Rank ${key}`
  }

  sourceOf(row: number): string {
    if (row < this.recorded) return this.manifest.sources[row]
    return this.manifest.failed[row - this.recorded]?.source ?? ''
  }

  hostOf(row: number): string {
    return row < this.recorded ? (this.manifest.hosts[this.host[row]] ?? '') : ''
  }

  deviceOf(row: number): string {
    if (row >= this.recorded || this.device[row] < 0) return ''
    return `${this.manifest.kinds[this.kind[row]] ?? 'device'}:${this.device[row]}`
  }

  /** Where the rank number comes from: "recording", "file name", … */
  rankSourceOf(row: number): string {
    return row < this.recorded ? (this.manifest.rank_sources[this.rankSource[row]] ?? '') : ''
  }

  oomOf(row: number): JobManifest['ooms'][number] | null {
    return this.firstOom.get(row) ?? null
  }

  /** Bytes of a stack at the row's peak, to 1/4095 of the stack's greatest. */
  bytesOfStack(stack: number, row: number): number {
    if (row >= this.recorded) return 0
    const level = this.stackBytes[stack * this.recorded + row]
    return level === 4095 ? this.stackMax[stack] : Math.round((level / 4095) * this.stackMax[stack])
  }

  bytesOfCategory(category: number, row: number): number {
    return row < this.recorded ? this.categoryBytes[category * this.recorded + row] : 0
  }

  /** Whether free memory on the device is known of any row. */
  get knowsFree(): boolean {
    return this.capacity.some((bytes) => bytes > 0)
  }

  /** The greatest value in each cell; of free memory the smallest. */
  matrix(key: JobAxis['key'], metric: Metric): HeatMatrix {
    return remembered(this.matrices, `${key}.${metric}`, () =>
      metric === 'free' ? this.freeMatrix(key) : this.readMatrix(key, metric),
    )
  }

  /** The expected value of each cell from the rest of its group, row-major. */
  expected(key: JobAxis['key'], metric: Metric): Float64Array {
    return remembered(this.expectations, `${key}.${metric}`, () =>
      expectedCells(this.matrix(key, metric), this.groups, this.rank),
    )
  }

  private readMatrix(key: JobAxis['key'], metric: Metric): HeatMatrix {
    const { columns } = this.axis(key)
    const { recorded, rows } = this
    const levels = this.heat.u16(`job.heat.${key}.${metric}`)
    const scale = this.manifest.heat_scale
    const bytes = new Float64Array(rows * columns).fill(NaN)
    // Levels are rounded up: none is above the rank's peak.
    const peaks = { allocated: this.peakAllocated, reserved: this.peakReserved }[metric as string]
    for (let column = 0; column < columns; column++) {
      for (let row = 0; row < recorded; row++) {
        const level = levels[column * recorded + row]
        if (level > 0) bytes[row * columns + column] = Math.min((level - 1) * scale, peaks?.[row] ?? Infinity)
      }
    }
    return { rows, columns, bytes }
  }

  private freeMatrix(key: JobAxis['key']): HeatMatrix {
    const { rows, columns, bytes } = this.matrix(key, 'reserved')
    const free = bytes.map((reserved, at) => {
      const row = Math.floor(at / columns)
      return this.capacity[row] > 0 ? Math.max(0, this.capacity[row] - this.outside[row] - reserved) : NaN
    })
    return { rows, columns, bytes: free }
  }
}

/** Rank numbers as texts that differ: "7", and "7.2" for the second row of a rank. Rows without a rank: "?", "?.2". */
export function keysOf(ranks: Int32Array): string[] {
  const seen = new Map<number, number>()
  return Array.from(ranks, (rank) => {
    const count = (seen.get(rank) ?? 0) + 1
    seen.set(rank, count)
    const name = rank < 0 ? '?' : String(rank)
    return count === 1 ? name : `${name}.${count}`
  })
}

/**
 * The expected value of every cell from the other rows of its group in the same column; NaN for rows without a group. Where
 * fewer than half of the group recorded the column, as when one rank goes on after the others have ended, it is what the
 * group had last: a rank is not compared with itself alone.
 */
export function expectedCells(
  { rows, columns, bytes }: HeatMatrix,
  groups: readonly { rows: readonly number[]; isSlope: boolean }[],
  rank: Int32Array,
): Float64Array {
  const out = new Float64Array(rows * columns).fill(NaN)
  for (const group of groups) {
    const ranks = group.rows.map((row) => rank[row])
    let last: ((rank: number) => number) | null = null
    for (let column = 0; column < columns; column++) {
      const values = group.rows.map((row) => bytes[row * columns + column])
      const isCommon = 2 * values.filter((value) => !Number.isNaN(value)).length >= values.length
      const fit: (rank: number) => number = isCommon || !last ? fitOf(ranks, values, group.isSlope) : last
      if (isCommon) last = fit
      group.rows.forEach((row, i) => {
        out[row * columns + column] = fit(ranks[i])
      })
    }
  }
  return out
}
