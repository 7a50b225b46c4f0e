// The colours of frames: packages, files of the program, and libraries in C++, the widest first.

import { type Cell, weightOf } from '../../flame/layout'
import { scrollsWhenSmall } from '../../ui/compact'
import { swatch } from '../../ui/controls'
import { fill, h } from '../../ui/dom'
import { plural, shortPath } from '../../ui/format'
import { css } from '../shared/inks'
import { isDifference } from './choices'
import { FrameColours, originOf } from './colours'
import { frameOf } from './describe'
import type { FlameModel } from './model'

/** So many origins at most; the rest are counted. */
const ENTRIES = 12

export class FlameLegend {
  readonly element = scrollsWhenSmall(h('ul.row.wrap.segments-legend', { 'aria-label': 'Colours of frames' }))
  private drawn: readonly unknown[] = []

  /** Where cells are coloured by something else (`model.mixes`), the legend of all views names the colours. */
  render(model: FlameModel, dark: boolean): void {
    const { layout, mixes, choices } = model
    this.element.hidden = mixes !== null
    const key = [layout, mixes, dark]
    if (key.every((part, i) => part === this.drawn[i])) return
    this.drawn = key
    if (mixes) return
    const colours = new FrameColours(dark)
    if (isDifference(choices.measure)) {
      fill(
        this.element,
        item(css(colours.change(1, 0)), 'Gained'),
        item(css(colours.change(0, 1)), 'Lost'),
        item(css(colours.change(1, 1)), 'As much gained as lost'),
      )
      return
    }
    const origins = originsOf(model, layout.cells)
    fill(
      this.element,
      ...origins.slice(0, ENTRIES).map((origin) => item(css(colours.of(origin)), shortPath(origin), origin)),
      origins.length > ENTRIES && h('li', `${plural(origins.length - ENTRIES, 'more origin')}`),
    )
  }
}

/** By the width of their cells, the widest first. */
function originsOf(model: FlameModel, cells: readonly Cell[]): string[] {
  const width = new Map<string, number>()
  for (const cell of cells) {
    const frame = cell.kind === 'frame' ? frameOf(model.tree, cell, model.frame) : null
    if (frame) width.set(originOf(frame), (width.get(originOf(frame)) ?? 0) + weightOf(cell))
  }
  return [...width].sort((a, b) => b[1] - a[1]).map(([origin]) => origin)
}

function item(colour: string, label: string, title = label): HTMLElement {
  return h('li', { title }, swatch(colour), label)
}
