// Colours of names and of ordered classes. Names differ in lightness as well as in hue, so that they can be distinguished with
// any kind of colour vision; classes climb in lightness away from the panel.

import { oklch } from '../shared/colours'

type Rgb = [number, number, number]

/** Lightness, chroma and hue. */
type Tone = readonly [number, number, number]

const CATEGORY: Readonly<Record<string, Tone>> = {
  parameter: [0.57, 0.12, 258],
  gradient: [0.74, 0.125, 60],
  'optimizer state': [0.46, 0.11, 316],
  activation: [0.75, 0.1, 172],
  temporary: [0.91, 0.115, 102],
  input: [0.87, 0.075, 218],
  communication: [0.54, 0.135, 28],
  workspace: [0.44, 0.14, 8],
  'kv cache': [0.77, 0.16, 320],
}
/** The first names get these; further ones hues far from each other in the same three lightnesses as stacks. */
const NAMED: readonly Tone[] = Object.values(CATEGORY)
const FURTHER_LIGHTNESS = [0.79, 0.57, 0.68]
const HUE_STEP = 137.508
/** On the dark panel colours stand out with less lightness. */
const DARKER = 0.05

/** Of allocations without a name. */
export function unknownColour(dark: boolean): Rgb {
  return oklch(dark ? 0.53 : 0.585, 0.005, 250)
}

/** Of the category of this name: the same in every report. */
export function categoryColour(name: string, index: number, dark: boolean): Rgb {
  if (name === 'unknown' || name === '') return unknownColour(dark)
  const tone = CATEGORY[name]
  return tone ? toned(tone, dark) : namedColour(NAMED.length + index, dark)
}

/** Of the i-th name, from 0. */
export function namedColour(i: number, dark: boolean): Rgb {
  if (i < NAMED.length) return toned(NAMED[i], dark)
  return toned([FURTHER_LIGHTNESS[i % 3], 0.1, (40 + i * HUE_STEP) % 360], dark)
}

/** Of a class from 0 (the least) to 1 (the most), which differs most from the panel. */
export function rampColour(share: number, dark: boolean): Rgb {
  return oklch(dark ? 0.4 + 0.48 * share : 0.88 - 0.48 * share, 0.1, 110 + 250 * share)
}

function toned([lightness, chroma, hue]: Tone, dark: boolean): Rgb {
  return oklch(dark ? lightness - DARKER : lightness, chroma, hue)
}
