import assert from 'node:assert/strict'
import { test } from 'node:test'
import { DecodedBlob } from '../src/data/columns'
import type { JobAxis, JobManifest } from '../src/data/contracts'
import { cellsOfPixel, paintHeat } from '../src/job/heat-pixels'
import { axisMarks, columnOf } from '../src/job/map-labels'
import { beyondWords } from '../src/job/panel'
import {
  againstGroups,
  divergingColour,
  heatCells,
  heatColour,
  levelOf,
  MIDDLE_LEVEL,
  scaleOf,
} from '../src/job/map-heat'
import { expectedCells, JobData, keysOf } from '../src/job/job-data'
import { rangeName, naturalOrder, orderRows, peaksOf } from '../src/job/job-model'
import {
  brushedRows,
  readColumns,
  readRows,
  readState,
  rowsInWords,
  type SortKey,
  writeRows,
} from '../src/job/job-state'
import { cellAt, layOutMap, MapWindow, zoneAt } from '../src/job/map-geometry'
import { clippedEnd, fitOf, medianOf, spreadOf } from '../src/job/statistics'
import { encodeBlob } from './encode'

const GIB = 2 ** 30
const SCALE = GIB / 100
const COLUMNS = 4
/** Levels of the map: allocated of six recorded ranks in four steps; 0: nothing recorded. */
const LEVELS = [
  [101, 151, 201, 101],
  [101, 151, 201, 101],
  [101, 151, 301, 101],
  [51, 61, 71, 51],
  [51, 61, 91, 0],
  [51, 61, 71, 51],
]
/** Levels are rounded up: that of the fifth rank by a quarter of one. */
const PEAKS = LEVELS.map((row, rank) => Math.round((Math.max(...row) - (rank === 4 ? 1.25 : 1)) * SCALE))

function job(): JobData {
  const axis: JobAxis = {
    key: 'step',
    label: 'step',
    columns: COLUMNS,
    first: [1, 3, 5, 6],
    last: [2, 4, 5, 6],
    unit: 'step',
    note: '',
  }
  const manifest: JobManifest = {
    schema: 'snapreport-job/2',
    ranks: 6,
    world_size: 9,
    missing: [7],
    failed: [{ rank: 6, source: 'rank6.pickle', error: 'cut short' }],
    headline: [],
    left_out: [],
    origin_us: null,
    clock: { comparable: false, sentence: '' },
    imbalance: null,
    hosts: ['node10', 'node2'],
    sources: ['0', '1', '2', '3', '4', '5'],
    states: ['', '', '', '', '', ''],
    links: ['', '', '', '', '', ''],
    kinds: ['cuda'],
    rank_sources: ['recording'],
    categories: ['parameter', 'activation'],
    groups: [0, 3].map((first) => ({
      name: `from ${first}`,
      rows: [first, first + 1, first + 2],
      kind: 'stage',
      memory: '',
      median_bytes: 0,
      min_bytes: 0,
      max_bytes: 0,
      slope_bytes_per_rank: null,
      stacks: [],
    })),
    outliers: [],
    ooms: [{ row: 4, step: 5, time_us: null, event: 9, tried_bytes: null }],
    findings: [],
    axes: [axis],
    metrics: ['allocated', 'reserved', 'unused'],
    detail: [],
    stack_names: [{ function: 'f', file: 'a.py', line: 1, name: 'f a.py:1', frames: [] }],
    heat_scale: SCALE,
  }
  const zeros = [0, 0, 0, 0, 0, 0]
  const ranks = [0, 1, 2, 3, 4, 4]
  const whole = (name: string, values: number[], dtype: 'u8' | 'u32' | 'i32' | 'f64' | 'u16') => ({
    name: `job.${name}`,
    dtype,
    values,
  })
  const columns = new DecodedBlob(
    encodeBlob([
      whole('rank', ranks, 'i32'),
      whole('rank_source', zeros, 'u8'),
      whole('host', [0, 0, 0, 1, 1, 1], 'u32'),
      whole('device', [0, 1, 2, 0, 1, 2], 'i32'),
      whole('kind', zeros, 'u8'),
      whole('group', [0, 0, 0, 1, 1, 1], 'i32'),
      whole('trusted', zeros, 'u8'),
      whole('cluster', [2, 1, 0, 3, 4, 5], 'u32'),
      whole('events', zeros, 'u32'),
      whole('steps', zeros, 'u32'),
      whole('peak_allocated', PEAKS, 'f64'),
      whole(
        'peak_reserved',
        PEAKS.map((peak, row) => peak + row),
        'f64',
      ),
      whole('peak_step', zeros, 'i32'),
      whole('end_allocated', zeros, 'f64'),
      whole('capacity', [0, 0, 0, 0, 0, 8 * GIB], 'f64'),
      whole('outside', [0, 0, 0, 0, 0, GIB], 'f64'),
      whole('ooms', [0, 0, 0, 0, 1, 0], 'u32'),
      whole('bytes_above', [0, 0, GIB, 0, 0, 0], 'f64'),
      whole('category_bytes', [1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60], 'f64'),
      whole('stack_max', [GIB], 'f64'),
      whole('stack_max_row', [1], 'u32'),
      whole('stack_category', [1], 'u8'),
      whole('stack_bytes', [0, 4095, 2048, 1, 0, 0], 'u16'),
    ]),
  )
  const levels = Array.from({ length: COLUMNS }, (_, column) => LEVELS.map((row) => row[column])).flat()
  const heat = new DecodedBlob(
    encodeBlob(
      ['allocated', 'reserved', 'unused'].map((metric) => ({
        name: `job.heat.step.${metric}`,
        dtype: 'u16' as const,
        values: levels,
      })),
    ),
  )
  return new JobData(manifest, columns, heat)
}

test('rows have names of their own, also where two recordings are of one rank and ranks are absent', () => {
  const data = job()
  assert.deepEqual(
    Array.from({ length: data.rows }, (_, row) => data.keyOf(row)),
    ['0', '1', '2', '3', '4', '4.2', '6', '7'],
  )
  assert.deepEqual(keysOf(Int32Array.of(-1, 3, -1)), ['?', '3', '?.2'])
  assert.equal(data.nameOf(1), 'Rank 1')
  assert.equal(data.nameOf(5), 'Rank 4 (5)')
  assert.deepEqual([data.status[5], data.status[6], data.status[7]], ['recorded', 'failed', 'missing'])
  for (let row = 0; row < data.rows; row++) assert.equal(data.rowOf(data.keyOf(row)), row)
  assert.equal(data.rowOf('99'), null)
})

test('cells are bytes by row and column, unknown ones are not zero', () => {
  const data = job()
  const { bytes, columns, rows } = data.matrix('step', 'allocated')
  assert.deepEqual([rows, columns], [8, 4])
  for (let row = 0; row < 6; row++) {
    for (let column = 0; column < COLUMNS; column++) {
      const level = LEVELS[row][column]
      const value = bytes[row * columns + column]
      if (level === 0) assert.ok(Number.isNaN(value))
      else assert.equal(value, Math.min((level - 1) * SCALE, PEAKS[row]))
    }
  }
  assert.ok(bytes.subarray(6 * columns).every(Number.isNaN), 'absent ranks have no cell')
  const free = data.matrix('step', 'free').bytes
  assert.equal(free[5 * columns], 7 * GIB - 50 * SCALE)
  assert.ok(free.subarray(0, 5 * columns).every(Number.isNaN), 'the size of their device is not known')
})

test('bytes of stacks: none is none, the most is exact', () => {
  const data = job()
  assert.deepEqual(
    [0, 1, 3, 6].map((row) => data.bytesOfStack(0, row)),
    [0, GIB, Math.round(GIB / 4095), 0],
  )
})

test('every order is a permutation with absent ranks last, but in the order of ranks', () => {
  const data = job()
  const peaks = peaksOf(data, data.axis('step'), null)
  const shown = Float64Array.of(0, 9, 3, 0, 0, 0, 0, 0)
  const expected: Record<SortKey, number[]> = {
    rank: [0, 1, 2, 3, 4, 5, 6, 7],
    host: [3, 4, 5, 0, 1, 2, 6, 7],
    peak: [2, 0, 1, 4, 3, 5, 6, 7],
    reserved: [2, 1, 0, 4, 5, 3, 6, 7],
    group: [2, 1, 0, 3, 4, 5, 6, 7],
    oom: [4, 0, 1, 2, 3, 5, 6, 7],
    above: [2, 0, 1, 3, 4, 5, 6, 7],
    shown: [1, 2, 0, 3, 4, 5, 6, 7],
  }
  for (const [by, order] of Object.entries(expected)) {
    assert.deepEqual([...orderRows(data, by as SortKey, peaks, shown)], order, by)
  }
  assert.deepEqual(['node10', 'node2', 'node1'].sort(naturalOrder), ['node1', 'node2', 'node10'])
})

test('peaks within brushed columns are those of the cells', () => {
  const data = job()
  const { allocated } = peaksOf(data, data.axis('step'), [0, 1])
  assert.deepEqual(
    [...allocated],
    [150, 150, 150, 60, 60, 60, 0, 0].map((level) => level * SCALE),
  )
})

test('a brush covers rows of the order shown, and survives the address', () => {
  const data = job()
  const order = Int32Array.of(2, 0, 1, 4, 3, 5, 6, 7)
  assert.deepEqual(brushedRows(order, 3, 1), [0, 1, 4])
  assert.deepEqual(brushedRows(order, -5, 0), [2])
  assert.equal(writeRows(data, [0, 1, 4]), '0,1,4')
  assert.equal(writeRows(data, [3, 2, 1, 0, 5]), '0..3,4.2')
  for (const rows of [[0], [0, 1, 4], [0, 1, 2, 3, 4, 5, 6, 7], [5, 7]]) {
    const read = readRows(data, writeRows(data, rows))
    assert.deepEqual([...read!].sort(), rows)
  }
  assert.equal(readRows(data, '99,abc'), null)
  assert.equal(readRows(data, undefined), null)
  assert.equal(rowsInWords(data, [0, 1, 2, 4]), 'ranks 0–2 and 4')
  assert.equal(rowsInWords(data, [3]), 'rank 3')
  assert.deepEqual(readColumns('1..9', 4), [1, 3])
  assert.equal(readColumns('3..1', 4), null)
})

test('the state is read from the address, and what it says wrongly is passed over', () => {
  const data = job()
  const plain = readState(data, {})
  assert.equal(plain.tab, 'groups')
  assert.deepEqual([plain.row, plain.rows, plain.columns, plain.sort], [null, null, null, 'rank'])
  assert.deepEqual(
    [readState(data, { 'job.rank': '4.2' }).row, readState(data, { 'job.rank': '4.2' }).tab],
    [5, 'rank'],
  )
  assert.equal(readState(data, { 'job.rank': '77', 'job.tab': 'rank' }).tab, 'groups')
  assert.equal(readState(data, { 'job.stack': '0' }).tab, 'stacks')
  assert.equal(readState(data, { 'job.stack': '1' }).stack, null)
  assert.deepEqual([...readState(data, { 'job.group': '1' }).rows!], [3, 4, 5])
  assert.equal(readState(data, { 'job.sort': 'age', 'job.metric': 'speed' }).metric, 'allocated')
})

test('colours climb in lightness all the way, in both themes', () => {
  const luminance = ([r, g, b]: readonly number[]): number =>
    [r, g, b]
      .map((byte) => (byte / 255 <= 0.03928 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4))
      .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0)
  for (const dark of [false, true]) {
    const steps = Array.from({ length: 33 }, (_, i) => luminance(heatColour(i / 32, dark)))
    const ends = [steps[0], steps[32]].sort((a, b) => a - b)
    assert.ok((ends[1] + 0.05) / (ends[0] + 0.05) > 7, 'both ends differ as black and white text must')
    for (let i = 1; i < steps.length; i++) assert.ok(dark ? steps[i] > steps[i - 1] : steps[i] < steps[i - 1])
    for (const side of [-1, 1]) {
      const away = Array.from({ length: 17 }, (_, i) => luminance(divergingColour((side * i) / 16, dark)))
      for (let i = 1; i < away.length; i++) assert.ok(dark ? away[i] > away[i - 1] : away[i] < away[i - 1])
    }
  }
})

test('a scale shows differences: from zero where values go down to it, and reversed where less is worse', () => {
  const matrix = (values: number[]) => ({ rows: 1, columns: values.length, bytes: Float64Array.from(values) })
  assert.deepEqual(scaleOf(matrix([10, 100]), 'allocated', false), {
    low: 0,
    high: 100,
    beyond: null,
    isDiverging: false,
  })
  assert.deepEqual(scaleOf(matrix([90, NaN, 100]), 'allocated', false), {
    low: 90,
    high: 100,
    beyond: null,
    isDiverging: false,
  })
  assert.deepEqual(scaleOf(matrix([10, 100]), 'free', false), { low: 100, high: 0, beyond: null, isDiverging: false })
  assert.deepEqual(scaleOf(matrix([-30, 10]), 'allocated', true), {
    low: -30,
    high: 30,
    beyond: null,
    isDiverging: true,
  })
  const scale = { low: -30, high: 30, isDiverging: true }
  assert.deepEqual(
    [NaN, -30, 0, 30, 99].map((value) => levelOf(value, scale)),
    [0, 1, MIDDLE_LEVEL, 255, 255],
  )
})

test('one extreme rank does not take the colours from the others', () => {
  const matrix = (values: number[]) => ({ rows: values.length, columns: 1, bytes: Float64Array.from(values) })
  const most = Array.from({ length: 20 }, (_, i) => 80 + i)
  assert.deepEqual(scaleOf(matrix([10, ...most, 9000]), 'allocated', false), {
    low: 0,
    high: 1.25 * 97,
    beyond: 9000,
    isDiverging: false,
  })
  assert.equal(scaleOf(matrix([10, ...most, 190]), 'allocated', false).beyond, null, 'less than twice the usual')
  assert.equal(scaleOf(matrix([0.1, -0.2, 0.1, 0, 400]), 'allocated', true).high, 100, 'noise stays pale')
  assert.equal(scaleOf(matrix([1, 100]), 'allocated', false).high, 100, 'of two ranks none is usual')
})

test('one extreme value does not squeeze a chart, and the chart says who it is', () => {
  const usual = Array.from({ length: 20 }, (_, i) => 80 + i)
  assert.equal(clippedEnd([10, ...usual, 9000]), 1.25 * 97)
  assert.equal(clippedEnd([10, ...usual, 190]), 190)
  assert.equal(clippedEnd([1, 100]), 100, 'of two none is usual')
  assert.equal(clippedEnd([]), 0)
  const GIB = 2 ** 30
  const words = (values: number[]): string | null => beyondWords('Bars', values, 10 * GIB, (index) => `Rank ${index}`)
  assert.equal(words([GIB, 2 * GIB]), null)
  assert.equal(words([GIB, 78 * GIB]), 'Bars end at 10.0 GiB; beyond: Rank 1 (78.0 GiB).')
  assert.equal(words([20 * GIB, 78 * GIB]), 'Bars end at 10.0 GiB; beyond: Rank 1 (78.0 GiB) and 1 more.')
})

test('against its group a rank differs from the median of the same column', () => {
  const data = job()
  const { bytes } = againstGroups(data.matrix('step', 'allocated'), data.expected('step', 'allocated'))
  const at = (row: number, column: number): number => Math.round(bytes[row * COLUMNS + column] / SCALE)
  assert.deepEqual([at(0, 2), at(2, 2), at(4, 2), at(3, 0)], [0, 100, 20, 0])
  assert.ok(Number.isNaN(bytes[4 * COLUMNS + 3]))
})

test('a rank that goes on after its group has ended is compared with what the group had last', () => {
  const [ranks, ended] = [Int32Array.of(0, 1, 2, 3), NaN]
  const bytes = Float64Array.from([5, 7, ended, 5, 8, ended, 6, 7, ended, 5, 9, 90])
  const matrix = { rows: 4, columns: 3, bytes }
  const expected = expectedCells(matrix, [{ rows: [0, 1, 2, 3], isSlope: false }], ranks)
  assert.deepEqual([...expected.subarray(9)], [5, 7.5, 7.5])
})

test('cells follow the order, and what is not brushed is dimmed', () => {
  const data = job()
  const matrix = data.matrix('step', 'allocated')
  const order = Int32Array.of(2, 0, 1, 3, 4, 5, 6, 7)
  const { bytes } = heatCells(matrix, order, scaleOf(matrix, 'allocated', false), new Set([2]), [1, 2])
  assert.deepEqual(
    [...bytes.subarray(0, 8)].filter((_, i) => i % 2),
    [1, 0, 0, 1],
  )
  assert.ok([...bytes.subarray(8)].filter((_, i) => i % 2).every((dim) => dim === 1))
  assert.equal(bytes[4], 255, 'the greatest cell of all')
})

test('a single hot cell is seen however many cells a pixel stands for', () => {
  const [columns, rows] = [100, 1000]
  const bytes = new Uint8Array(2 * columns * rows)
  for (let i = 0; i < bytes.length; i += 2) bytes[i] = 10
  const hot = 2 * (617 * columns + 41)
  bytes[hot] = 255
  const palette = new Uint8Array(1024).map((_, i) => (i % 4 === 3 ? 255 : Math.floor(i / 4)))
  const words = new Uint32Array(20 * 30)
  const style = { palette, background: [0, 0, 0] as const, centre: 0 }
  paintHeat(words, 20, 30, { columns, rows, bytes }, { x0: 0, x1: columns, y0: 0, y1: rows }, style)
  const found = [...words.entries()].filter(([, word]) => (word & 255) === 255).map(([at]) => at)
  // 5 columns and 33⅓ rows a pixel.
  assert.deepEqual(found, [18 * 20 + 8])
  bytes[hot + 1] = 1
  paintHeat(words, 20, 30, { columns, rows, bytes }, { x0: 0, x1: columns, y0: 0, y1: rows }, style)
  assert.ok(
    [...words].every((word) => (word & 255) === 10),
    'what is dimmed does not cover what is brushed',
  )
})

test('a row of pixels is the same whether it is painted with those around it or alone', () => {
  const [columns, rows, width, height] = [7, 5, 40, 60]
  const bytes = new Uint8Array(2 * columns * rows).map((_, i) => (i % 2 ? Number(i % 6 === 1) : (i * 53) % 256))
  const style = { palette: new Uint8Array(1024).map((_, i) => i & 255), background: [9, 9, 9] as const, centre: 0 }
  for (const [y0, y1] of [
    [0, 5],
    [1.2, 2.9],
  ]) {
    const all = new Uint32Array(width * height)
    paintHeat(all, width, height, { columns, rows, bytes }, { x0: 0.5, x1: 6, y0, y1 }, style)
    const distinct = new Set<string>()
    for (let y = 0; y < height; y++) {
      const cells = cellsOfPixel(y, y0, (y1 - y0) / height, rows)
      const alone = Array.from({ length: width }, (_, x) => {
        const across = cellsOfPixel(x, 0.5, 5.5 / width, columns)
        const at = 2 * (cells[0] * columns + across[0])
        const level = bytes[at]
        const fade = (part: number): number => {
          const full = style.palette[4 * level + part]
          return bytes[at + 1] ? Math.round(9 + (full - 9) * 0.28) : full
        }
        const isGap = cells[2] || across[2]
        const [r, g, b] = isGap ? style.background : [fade(0), fade(1), fade(2)]
        return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
      })
      assert.deepEqual([...all.subarray(y * width, (y + 1) * width)], alone, `row ${y} of ${y0} to ${y1}`)
      distinct.add(alone.join())
    }
    assert.ok(distinct.size > 2)
  }
})

test('pixels of large cells have a line between them, those of small ones show every cell', () => {
  assert.deepEqual(cellsOfPixel(0, 0, 0.1, 5), [0, 1, false])
  assert.deepEqual(cellsOfPixel(9, 0, 0.1, 5), [0, 1, true])
  const seen = new Set<number>()
  for (let pixel = 0; pixel < 7; pixel++) {
    const [first, past] = cellsOfPixel(pixel, 0, 30 / 7, 30)
    for (let cell = first; cell < past; cell++) seen.add(cell)
  }
  assert.equal(seen.size, 30)
})

test('few ranks do not fill the height of the map, and one more is one row more', () => {
  const height = (rows: number): number => {
    const { top, bottom } = layOutMap(1000, 900, 60, rows)
    return bottom - top
  }
  assert.ok(height(2) <= 100)
  assert.equal(height(4), 2 * height(2))
  assert.equal(height(64), height(1024), 'many have what there is')
})

test('a place of the map is a cell, zooming keeps it in place and inside', () => {
  const geometry = layOutMap(1000, 600, 60, 50)
  const window = { x0: 0, x1: 10, y0: 0, y1: 50 }
  const cell = cellAt({ geometry, window }, geometry.left + 1, geometry.bottom - 1, 50, 10)
  assert.deepEqual(cell, { place: 49, column: 0 })
  assert.equal(zoneAt(geometry, geometry.left + 5, geometry.top + 5), 'cells')
  assert.equal(zoneAt(geometry, 5, geometry.top + 5), 'rows')
  assert.equal(zoneAt(geometry, geometry.left + 5, geometry.bottom + 5), 'columns')
  const map = new MapWindow()
  map.size = [100, 100]
  map.fit()
  const middle = { x: (geometry.left + geometry.right) / 2, y: (geometry.top + geometry.bottom) / 2 }
  map.zoom(geometry, middle, 0.5, 0.001)
  assert.deepEqual(map.shown, { x0: 25, x1: 75, y0: 48, y1: 52 })
  map.zoom(geometry, { x: 0, y: geometry.top }, 0.001, 1)
  assert.deepEqual([map.shown.x0, map.shown.x1], [25, 27])
  map.reveal(70, 20)
  assert.deepEqual(map.shown, { x0: 20, x1: 22, y0: 67, y1: 71 })
  map.zoom(geometry, middle, 100, 100)
  assert.deepEqual(map.shown, { x0: 0, x1: 100, y0: 0, y1: 100 })
})

test('columns are called by their steps, times or shares, and marks fall on round ones', () => {
  const axis = job().axis('step')
  assert.deepEqual(
    [rangeName(axis, 0), rangeName(axis, 2), rangeName(axis, 0, 2)],
    ['steps 1 to 2', 'step 5', 'steps 1 to 5'],
  )
  assert.deepEqual([columnOf(axis, 1), columnOf(axis, 4), columnOf(axis, 6), columnOf(axis, 99)], [0, 1, 3, 3])
  const long: JobAxis = {
    ...axis,
    columns: 100,
    first: Array.from({ length: 100 }, (_, i) => 412 + i),
    last: Array.from({ length: 100 }, (_, i) => 412 + i),
  }
  assert.deepEqual(axisMarks(long, 0, 100, 4), [
    { at: 38.5, label: '450' },
    { at: 88.5, label: '500' },
  ])
})

test('what a group leads one to expect follows its slope, and one rank that stands out does not bend it', () => {
  const ranks = [1, 2, 3, 4, 5, 6, 7, 8]
  const values = ranks.map((rank) => 100 - 10 * rank)
  values[5] += 500
  const fit = fitOf(ranks, values, true)
  for (const rank of ranks) assert.equal(fit(rank), 100 - 10 * rank)
  assert.equal(fitOf(ranks, [5, 5, 5, 5, NaN, 5, 5, 900], false)(8), 5)
  assert.ok(Number.isNaN(fitOf([1], [NaN], true)(1)))
})

test('spreads and medians ignore what is not known', () => {
  assert.deepEqual(spreadOf([5, 1, NaN, 3, 2, 4]), [1, 2, 3, 4, 5])
  assert.equal(medianOf([4, 1]), 2.5)
  assert.equal(spreadOf([NaN]), null)
})
