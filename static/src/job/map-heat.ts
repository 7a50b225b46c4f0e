// What the map draws of a metric: values, levels, colours, and how the ranks spread, each made again only when it differs.

import type { HeatCells } from '../gl/heat-raster'
import { Memo } from '../views/memo'
import { againstGroups, type HeatScale, heatCells, scaleOf } from './heat-cells'
import { heatPalette } from './heat-colours'
import type { HeatMatrix } from './job-data'
import type { JobModel } from './job-model'
import { type Spread, spreadOf } from './statistics'

export interface Heat {
  matrix: HeatMatrix
  scale: HeatScale
  cells: HeatCells
  /** Of the brushed rows, by column. */
  spreads: (Spread | null)[]
  /** Whether at least half of the brushed rows recorded a column: the median of fewer says nothing of the job. */
  isCommon: boolean[]
  /** RGBA by level. */
  palette: Uint8Array
}

export class MapHeat {
  private readonly matrices = new Memo<HeatMatrix>()
  private readonly cells = new Memo<Omit<Heat, 'matrix' | 'palette'>>()
  private readonly palettes = new Memo<Uint8Array>()

  of({ data, state, order, rows: counted, dark, inks }: JobModel): Heat {
    const { axis, metric, isAgainst, rows, columns } = state
    const matrix = this.matrices.get([data, axis.key, metric, isAgainst], () => {
      const absolute = data.matrix(axis.key, metric)
      return isAgainst ? againstGroups(absolute, data.expected(axis.key, metric)) : absolute
    })
    const shown = this.cells.get([matrix, order.join(), rows && [...rows].join(), columns?.join('-')], () => {
      const scale = scaleOf(matrix, metric, isAgainst)
      const values = Array.from({ length: matrix.columns }, (_, column) =>
        counted.map((row) => matrix.bytes[row * matrix.columns + column]).filter((value) => !Number.isNaN(value)),
      )
      const isCommon = values.map(({ length }) => 2 * length >= counted.length)
      return { scale, cells: heatCells(matrix, order, scale, rows, columns), spreads: values.map(spreadOf), isCommon }
    })
    const palette = this.palettes.get([isAgainst, dark, inks.panel.join()], () =>
      heatPalette(isAgainst, dark, inks.panel, inks.ink),
    )
    return { matrix, ...shown, palette }
  }
}
