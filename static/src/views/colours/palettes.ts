// Colours of names and of ordered classes. Names are at least ΔE 12 (CIEDE2000) apart, and from unknown, with any kind of colour
// vision and even in shades 5% apart each way; classes climb in lightness away from the panel.

import { oklch, unknownColour } from '../shared/colours'

export { unknownColour }

type Rgb = [number, number, number]

/** Lightness, chroma and hue. */
type Tone = readonly [number, number, number]

const CATEGORY: Readonly<Record<string, Tone>> = {
  parameter: [0.56, 0.14, 272],
  gradient: [0.685, 0.15, 68.2],
  'optimizer state': [0.4, 0.14, 330],
  activation: [0.779, 0.139, 163.5],
  temporary: [0.93, 0.15, 100],
  input: [0.93, 0.08, 196.6],
  communication: [0.482, 0.137, 44.8],
  workspace: [0.4, 0.107, 14.3],
  'kv cache': [0.774, 0.122, 306],
}
/** The first names get these; further ones hues far from each other in the same three lightnesses as stacks. */
const NAMED: readonly Tone[] = Object.values(CATEGORY)
const FURTHER_LIGHTNESS = [0.79, 0.57, 0.68]
const HUE_STEP = 137.508
/** On the dark panel colours stand out with less lightness. */
const DARKER = 0.05

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
