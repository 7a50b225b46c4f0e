// Keys that move a picture's window, one table for all pictures: W and S, + and − zoom; A and D and the arrows move it;
// 0 and Home show everything.

/** Of the window: what a zoom by one key leaves of it, and how far one key moves it. */
export const ZOOM = 0.75
export const STEP = 0.12

export type Navigation =
  /** Factors below 1 zoom in. */
  | { kind: 'zoom'; factor: number; isLetter: boolean }
  /** Shares of the window's width and height, to the right and up. */
  | { kind: 'pan'; x: number; y: number; isArrow: boolean }
  | { kind: 'fit' }

const zoom = (factor: number, isLetter: boolean): Navigation => ({ kind: 'zoom', factor, isLetter })
const pan = (x: number, y: number, isArrow: boolean): Navigation => ({ kind: 'pan', x, y, isArrow })

const KEYS: ReadonlyMap<string, Navigation> = new Map([
  ['w', zoom(ZOOM, true)],
  ['s', zoom(1 / ZOOM, true)],
  ['+', zoom(ZOOM, false)],
  ['=', zoom(ZOOM, false)],
  ['-', zoom(1 / ZOOM, false)],
  ['_', zoom(1 / ZOOM, false)],
  ['a', pan(-STEP, 0, false)],
  ['d', pan(STEP, 0, false)],
  ['ArrowLeft', pan(-STEP, 0, true)],
  ['ArrowRight', pan(STEP, 0, true)],
  ['ArrowUp', pan(0, STEP, true)],
  ['ArrowDown', pan(0, -STEP, true)],
  ['0', { kind: 'fit' }],
  ['Home', { kind: 'fit' }],
])

/** null: the key does not move a window. */
export function navigationOf({ key }: KeyboardEvent): Navigation | null {
  return KEYS.get(key.length === 1 ? key.toLowerCase() : key) ?? null
}
