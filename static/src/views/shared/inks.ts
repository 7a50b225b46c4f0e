// Colours of everything that is drawn on a canvas: those of the style sheet, and tones made from them.

import type { Colour } from '../../gl/rects'
import { oklch } from './colours'

export type Rgb = readonly [number, number, number]

export interface Inks {
  panel: Rgb
  ink: Rgb
  soft: Rgb
  line: Rgb
  accent: Rgb
  peak: Rgb
  oom: Rgb
  reserved: Rgb
  snapshot: Rgb
  /** Laid over what is drawn. */
  grid: Colour
  selection: Colour
  halo: Colour
  /** Free bytes in a segment with a live block. */
  split: Rgb
  /** The same as an area of a chart, where it has to differ from unused segments. */
  splitArea: Rgb
  wholeArea: Rgb
  /** An unused segment. */
  whole: Rgb
  /** Bytes of a block beyond the request. */
  rounding: Rgb
  pending: Rgb
  allocated: Rgb
  /** The line of what all processes use of the device. */
  deviceUsed: Rgb
  /** The line of the largest free range, drawn over the areas of free bytes. */
  largest: Rgb
}

export function readInks(element: Element, dark: boolean): Inks {
  const style = getComputedStyle(element)
  const property = (name: string): string => style.getPropertyValue(`--${name}`).trim()
  const read = (name: string): Rgb => parseHex(property(name)).slice(0, 3) as unknown as Rgb
  const panel = read('panel')
  const ink = read('ink')
  return {
    panel,
    ink,
    soft: read('ink-soft'),
    line: read('line'),
    accent: read('accent'),
    peak: read('peak'),
    oom: read('oom'),
    reserved: read('reserved'),
    snapshot: read('snapshot'),
    grid: parseHex(property('grid')),
    selection: parseHex(property('selection')),
    halo: parseHex(property('halo')),
    split: mix(panel, ink, dark ? 0.2 : 0.14),
    splitArea: dark ? oklch(0.68, 0.11, 75) : oklch(0.8, 0.12, 80),
    wholeArea: mix(panel, ink, dark ? 0.22 : 0.13),
    whole: mix(panel, ink, dark ? 0.09 : 0.05),
    rounding: dark ? [214, 92, 150] : [190, 46, 118],
    pending: read('peak'),
    largest: dark ? oklch(0.87, 0.13, 170) : oklch(0.45, 0.1, 170),
    allocated: dark ? oklch(0.66, 0.1, 250) : oklch(0.66, 0.105, 250),
    deviceUsed: dark ? oklch(0.82, 0.11, 200) : oklch(0.5, 0.09, 205),
  }
}

/** share 0: a, 1: b. */
export function mix(a: Rgb, b: Rgb, share: number): Rgb {
  return [0, 1, 2].map((i) => Math.round(a[i] + (b[i] - a[i]) * share)) as unknown as Rgb
}

export function css([r, g, b, a = 255]: Colour, opacity = 1): string {
  const alpha = (opacity * a) / 255
  return alpha === 1 ? `rgb(${r} ${g} ${b})` : `rgb(${r} ${g} ${b} / ${alpha})`
}

/** A pixel of an ImageData seen as 32-bit words; all machines that run browsers are little-endian. */
export function word([r, g, b]: Rgb): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
}

/** Black or white, whichever can be read better on a colour. */
export function textOn(ground: Rgb): string {
  return luminance(ground) > 0.18 ? '#000' : '#fff'
}

/** Of WCAG: 0 black, 1 white. */
export function luminance([r, g, b]: Rgb): number {
  const linear = (byte: number): number => (byte <= 10 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4)
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
}

/** Colours of memory pools and streams: hues far apart, the same order every time. */
export function groupColour(index: number, dark: boolean): Rgb {
  return oklch(dark ? 0.62 : 0.72, 0.09, (250 + index * 137.508) % 360)
}

/** #rrggbb or #rrggbbaa; all of the style sheet's are. */
export function parseHex(text: string): Colour {
  const match = /^#([0-9a-f]{6})([0-9a-f]{2})?$/i.exec(text)
  const bits = match ? parseInt(match[1], 16) : 0x808080
  return [bits >> 16, (bits >> 8) & 255, bits & 255, match?.[2] ? parseInt(match[2], 16) : 255]
}
