// Which tiles a window needs, and which finished ones to show meanwhile. Pure; knows tiles, not their contents.
//
// Level k halves the width of a tile k times, y level j its height j times, so the parent of a tile covers it whole.
// A place whose own tile is missing shows its nearest finished ancestor, and over it the finished finer tiles,
// so that zooming in or out never shows a gap.

import type { Rect } from '../layout/viewport'

/** Place of a tile in the pyramid. */
export interface Address {
  level: number
  tile: number
  yLevel: number
  yTile: number
}

/** The pyramid: tile (0, 0) starts at (x0, y0) and is width × height at the coarsest levels. */
export interface Grid {
  x0: number
  y0: number
  width: number
  height: number
  /** The part with data: no tile wholly outside it is needed. */
  xEnd: number
  yEnd: number
  maxLevel: number
  maxYLevel: number
  /** Columns and rows per tile. */
  columns: number
  rows: number
}

/** A part of a finished tile to show. */
export interface Shown {
  address: Address
  region: Rect
  /** Whether this is the tile needed there, not a stand-in. */
  isNeeded: boolean
}

/** A column or row may cover this many device pixels before the next level is needed. */
const MAX_PIXELS = 1.5

/** Coarsest levels that are sharp enough for the window on so many device pixels. */
export function chooseLevels(grid: Grid, window: Rect, pixelWidth: number, pixelHeight: number): [number, number] {
  const columnPixels = (pixelWidth * grid.width) / grid.columns / (window.x1 - window.x0)
  const rowPixels = (pixelHeight * grid.height) / grid.rows / (window.y1 - window.y0)
  return [
    clamp(Math.ceil(Math.log2(columnPixels / MAX_PIXELS)), 0, grid.maxLevel),
    clamp(Math.ceil(Math.log2(rowPixels / MAX_PIXELS)), 0, grid.maxYLevel),
  ]
}

/** Tiles of a level that touch the window and hold data, those nearest the middle first; margin: extra tiles left and right. */
export function neededTiles(grid: Grid, window: Rect, level: number, yLevel: number, margin = 0): Address[] {
  const width = grid.width / 2 ** level
  const height = grid.height / 2 ** yLevel
  const lastTile = Math.max(0, Math.ceil((grid.xEnd - grid.x0) / width) - 1)
  const lastYTile = Math.max(0, Math.ceil((grid.yEnd - grid.y0) / height) - 1)
  const from = Math.max(0, Math.floor((window.x0 - grid.x0) / width) - margin)
  const to = Math.min(lastTile, Math.ceil((window.x1 - grid.x0) / width) - 1 + margin)
  const yFrom = Math.max(0, Math.floor((window.y0 - grid.y0) / height))
  const yTo = Math.min(lastYTile, Math.ceil((window.y1 - grid.y0) / height) - 1)
  const found: Address[] = []
  for (let tile = from; tile <= to; tile++) {
    for (let yTile = yFrom; yTile <= yTo; yTile++) found.push({ level, tile, yLevel, yTile })
  }
  const middleX = ((window.x0 + window.x1) / 2 - grid.x0) / width - 0.5
  const middleY = ((window.y0 + window.y1) / 2 - grid.y0) / height - 0.5
  const distance = (a: Address): number => Math.abs(a.tile - middleX) + Math.abs(a.yTile - middleY)
  return found.sort((a, b) => distance(a) - distance(b))
}

export function regionOf(grid: Grid, a: Address): Rect {
  const width = grid.width / 2 ** a.level
  const height = grid.height / 2 ** a.yLevel
  const x0 = grid.x0 + a.tile * width
  const y0 = grid.y0 + a.yTile * height
  return { x0, x1: x0 + width, y0, y1: y0 + height }
}

/** What to draw, back to front, so that every needed place shows its best finished tile. */
export function coverWindow(grid: Grid, needed: readonly Address[], isReady: (a: Address) => boolean): Shown[] {
  const shown: Shown[] = []
  for (const address of needed) {
    const region = regionOf(grid, address)
    if (isReady(address)) {
      shown.push({ address, region, isNeeded: true })
      continue
    }
    const ancestor = nearestAncestor(address, isReady)
    if (ancestor) shown.push({ address: ancestor, region, isNeeded: false })
    for (const finer of finerTiles(grid, address)) {
      if (isReady(finer)) shown.push({ address: finer, region: regionOf(grid, finer), isNeeded: false })
    }
  }
  return shown
}

function nearestAncestor(a: Address, isReady: (a: Address) => boolean): Address | null {
  for (let steps = 1; steps <= a.level + a.yLevel; steps++) {
    for (let up = Math.max(0, steps - a.yLevel); up <= Math.min(steps, a.level); up++) {
      const yUp = steps - up
      const candidate = {
        level: a.level - up,
        tile: Math.floor(a.tile / 2 ** up),
        yLevel: a.yLevel - yUp,
        yTile: Math.floor(a.yTile / 2 ** yUp),
      }
      if (isReady(candidate)) return candidate
    }
  }
  return null
}

/** Tiles inside this one, one y level finer, then one and two levels finer: what was just looked at before zooming out. */
function* finerTiles(grid: Grid, a: Address): Generator<Address> {
  if (a.yLevel < grid.maxYLevel) {
    for (let part = 0; part < 2; part++) yield { ...a, yLevel: a.yLevel + 1, yTile: a.yTile * 2 + part }
  }
  for (let down = 2; down >= 1; down--) {
    if (a.level + down > grid.maxLevel) continue
    for (let part = 0; part < 2 ** down; part++) {
      yield { ...a, level: a.level + down, tile: a.tile * 2 ** down + part }
    }
  }
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value))
}
