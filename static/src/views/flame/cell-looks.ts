// The looks of cells: colours by the choices and the colouring, names, amounts, matches.

import type { Cell } from '../../flame/layout'
import { weightOf } from '../../flame/layout'
import { shortName } from '../../ui/format'
import { cssOf, rgbOf } from '../colouring'
import { Memo } from '../memo'
import { css, parseHex, type Rgb } from '../shared/inks'
import type { ViewContext } from '../view'
import { isDifference } from './choices'
import { FrameColours, originOf } from './colours'
import { formatSum, frameOf, nameOfCell, operatorOf, placeOf } from './describe'
import type { FlameModel } from './model'
import type { CellLook, Look } from './painter'

/** Parts of a strip that are thinner, as shares of the cell, are left blank. */
const MIN_SHARE = 0.004

export class CellLooks {
  private readonly colours = new Memo<FrameColours>()

  of(model: FlameModel, context: ViewContext): (cell: Cell, above: Cell | null) => CellLook {
    const { measure } = model.choices
    const matched = model.tree.weights.matched
    return (cell, above) => ({
      fill: this.fillOf(model, context, cell),
      ...this.wordsOf(model, cell, above),
      amount: formatSum(cell, measure),
      matched: matched ? (weightOf(cell) > 0 ? cell.matched / weightOf(cell) : 0) : 1,
      strip: this.stripOf(model, context, cell),
    })
  }

  private wordsOf(
    model: FlameModel,
    cell: Cell,
    above: Cell | null,
  ): Pick<CellLook, 'name' | 'place' | 'isPlaceFirst'> {
    const { tree, frame, choices } = model
    const shown = frameOf(tree, cell, frame)
    const place = cell.kind === 'frame' ? placeOf(tree, cell, shown) : ''
    // The cell above says the file already.
    const isSaid = above?.kind === 'frame' && shown !== null && frameOf(tree, above, frame)?.filename === shown.filename
    return {
      name: labelOf(model, cell),
      place: isSaid ? place.slice(shown.file.length) : place,
      isPlaceFirst: choices.merge === 'line',
    }
  }

  swatch(model: FlameModel, context: ViewContext, cell: Cell): string {
    return css(this.fillOf(model, context, cell))
  }

  private fillOf({ tree, choices, mixes, frame }: FlameModel, { dark, colouring }: ViewContext, cell: Cell): Rgb {
    const colours = this.colours.get([dark], () => new FrameColours(dark))
    if (isDifference(choices.measure)) return colours.change(cell.value, cell.loss)
    if (mixes) {
      const [first] = mixes.of(cell.low, cell.high)
      return first ? rgbOf(colouring, first.key) : colours.plain
    }
    const shown = frameOf(tree, cell, frame)
    return shown && cell.kind === 'frame' ? colours.of(originOf(shown)) : colours.plain
  }

  private stripOf({ choices, mixes }: FlameModel, { dark, colouring }: ViewContext, cell: Cell): CellLook['strip'] {
    const weight = weightOf(cell)
    if (isDifference(choices.measure)) {
      if (cell.value === 0 || cell.loss === 0) return []
      const colours = this.colours.get([dark], () => new FrameColours(dark))
      return [
        { fill: css(colours.change(1, 0)), share: cell.value / weight },
        { fill: css(colours.change(0, 1)), share: cell.loss / weight },
      ]
    }
    const parts = mixes?.of(cell.low, cell.high) ?? []
    if (parts.length < 2) return []
    return parts
      .map((part) => ({ fill: cssOf(colouring, part.key), share: part.weight / weight }))
      .filter(({ share }) => share >= MIN_SHARE)
  }
}

/** The name in a cell: C++ frames that bind or implement an operator have its name. */
export function labelOf({ tree, frame }: FlameModel, cell: Cell): string {
  const shown = frameOf(tree, cell, frame)
  const name = nameOfCell(cell, shown)
  if (cell.kind === 'frame') return shown?.operator || shortName(name)
  const operator = cell.kind === 'native' ? operatorOf(tree, cell, frame) : ''
  return operator ? `${operator}  ${name}` : name
}

/** The style sheet's colours, for the canvas. */
export function readLook(element: Element): Look {
  const style = getComputedStyle(element)
  const read = (name: string): string => style.getPropertyValue(`--${name}`).trim()
  const [red, green, blue] = parseHex(read('panel'))
  return { panel: [red, green, blue], ink: read('ink'), accent: read('accent'), mono: read('mono') }
}
