// Draws the rows of a layout that are in sight.

import { type Cell, type FlameLayout, weightOf } from '../../flame/layout'
import { firstWhere } from '../../layout/binary-search'
import { css, mix, type Rgb } from '../shared/inks'
import { inkOn } from './colours'

export const ROW = 21
const FONT_SIZE = 11.5
/** Under the text of a cell: what was gained and lost, or how it divides among categories. */
const STRIP = 3
const PAD = 5

export interface Look {
  panel: Rgb
  ink: string
  accent: string
  mono: string
}

export interface CellLook {
  fill: Rgb
  name: string
  /** "train.py:12"; '' where none is known. */
  place: string
  /** Where there is no room for both, the place stays and the name is cut. */
  isPlaceFirst: boolean
  /** Its weight, where there is room for it. */
  amount: string
  /** Share of it that the query matches: the rest is dimmed. */
  matched: number
  /** Coloured parts of the strip, shares of the cell. */
  strip: readonly { fill: string; share: number }[]
}

export interface Scene {
  layout: FlameLayout
  /** Pixels per unit of weight. */
  scale: number
  width: number
  height: number
  scrollTop: number
  /** The top of a row in the picture, before it is scrolled. */
  yOf(row: number): number
  look: Look
  /** Called for the cells in sight alone; `above`: the cell that a cell is under. */
  lookOf(cell: Cell, above: Cell | null): CellLook
  hover: number
  cursor: number
  isSelected(cell: Cell): boolean
}

/** The context's unit is the CSS pixel. */
export function paint(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { layout, height, scrollTop } = scene
  ctx.clearRect(0, 0, scene.width, height)
  ctx.font = `${FONT_SIZE}px ${scene.look.mono}`
  ctx.textBaseline = 'middle'
  const letter = ctx.measureText('0').width
  for (let row = 0; row + 1 < layout.rows.length; row++) {
    const y = scene.yOf(row) - scrollTop
    if (y > height || y + ROW < 0) continue
    for (let i = layout.rows[row]; i < layout.rows[row + 1]; i++) paintCell(ctx, scene, i, letter)
  }
  // After the cells, so that neighbours do not cover it.
  if (scene.hover >= 0) frame(ctx, scene, scene.hover, scene.look.ink, 1)
  if (scene.cursor >= 0) frame(ctx, scene, scene.cursor, scene.look.accent, 2)
}

function boxOf({ layout, scale, scrollTop, yOf }: Scene, index: number): { x: number; y: number; w: number } {
  const cell = layout.cells[index]
  const x = cell.from * scale
  return { x, y: yOf(cell.row) - scrollTop, w: weightOf(cell) * scale }
}

function frame(ctx: CanvasRenderingContext2D, scene: Scene, index: number, colour: string, thick: number): void {
  const { x, y, w } = boxOf(scene, index)
  ctx.strokeStyle = colour
  ctx.lineWidth = thick
  const inset = thick / 2
  ctx.strokeRect(x + inset, y + inset, Math.max(1, w - 2 * inset - 1), ROW - 1 - 2 * inset)
}

function paintCell(ctx: CanvasRenderingContext2D, scene: Scene, index: number, letter: number): void {
  const { look } = scene
  const cell = scene.layout.cells[index]
  const { x, y, w } = boxOf(scene, index)
  // A gap separates neighbours where there is room for one.
  const inner = w > 3 ? w - 1 : w
  const { fill, name, place, isPlaceFirst, amount, matched, strip } = scene.lookOf(
    cell,
    scene.layout.cells[cell.parent] ?? null,
  )
  const isRest = cell.kind === 'own'
  const dimmed = mix(fill, look.panel, 0.78)
  const ground = isRest ? mix(fill, look.panel, 0.86) : matched >= 1 ? fill : dimmed
  ctx.fillStyle = css(ground)
  ctx.fillRect(x, y, inner, ROW - 1)
  if (!isRest && matched > 0 && matched < 1) {
    ctx.fillStyle = css(mix(fill, look.panel, 0.45))
    ctx.fillRect(x, y, inner * matched, ROW - 1)
  }
  if (w < 3) return
  let at = x
  for (const part of strip) {
    ctx.fillStyle = part.fill
    ctx.fillRect(at, y + ROW - 1 - STRIP, inner * part.share, STRIP)
    at += inner * part.share
  }
  if (scene.isSelected(cell)) {
    ctx.fillStyle = look.accent
    ctx.fillRect(x, y, inner, 2)
  }
  const room = inner - 2 * PAD
  const label = wordsIn(ctx, { name, place, isPlaceFirst }, room, letter)
  if (!label) return
  const middle = y + (ROW - 1) / 2 + 0.5
  ctx.fillStyle = matched >= 1 && !isRest ? inkOn(fill) : look.ink
  ctx.fillText(label.text, x + PAD, middle)
  const used = ctx.measureText(label.text).width
  if (label.isWhole && used + 14 + amount.length * letter <= room)
    ctx.fillText(amount, x + PAD + room - ctx.measureText(amount).width, middle)
}

/** Name and place as far as there is room: both, or the one that matters with as much of the other as fits. */
export function wordsIn(
  ctx: Pick<CanvasRenderingContext2D, 'measureText'>,
  { name, place, isPlaceFirst }: Pick<CellLook, 'name' | 'place' | 'isPlaceFirst'>,
  room: number,
  letter: number,
): { text: string; isWhole: boolean } | null {
  const fits = (text: string): boolean => clip(ctx, text, room, letter) === text
  const file = place.slice(place.lastIndexOf('/') + 1)
  for (const at of place ? [place, file] : [])
    if (fits(`${name}  ${at}`)) return { text: `${name}  ${at}`, isWhole: true }
  if (place && isPlaceFirst) {
    if (fits(file)) {
      const rest = clip(ctx, name, room - (file.length + 2) * letter, letter)
      return { text: rest ? `${rest}  ${file}` : file, isWhole: false }
    }
    const line = file.slice(file.lastIndexOf(':'))
    const rest = clip(ctx, name, room - line.length * letter, letter)
    if (rest) return { text: rest + line, isWhole: false }
  }
  const text = clip(ctx, name, room, letter)
  return text ? { text, isWhole: text === name } : null
}

/** As much of a text as fits, with "…" where it is cut; '' where barely a letter would remain. */
export function clip(
  ctx: Pick<CanvasRenderingContext2D, 'measureText'>,
  text: string,
  room: number,
  letter: number,
): string {
  if (room < 2.5 * letter) return ''
  // The font is monospaced except for letters that it lacks: those are measured.
  const fits = (shown: string): boolean =>
    (/^[\x20-\x7e…]*$/.test(shown) ? shown.length * letter : ctx.measureText(shown).width) <= room
  if (fits(text)) return text
  const letters = Array.from(text.slice(0, Math.ceil(room / letter) * 2 + 2))
  const cut = (count: number): string => letters.slice(0, count).join('') + '…'
  const most = firstWhere(1, letters.length + 1, (count) => !fits(cut(count))) - 1
  return most > 0 ? cut(most) : ''
}
