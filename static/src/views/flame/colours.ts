// Colours of frames: one hue for what belongs to one package or file, even in lightness, and a readable ink on it.
// Growth has its own: orange gained, blue lost, distinct for every kind of colour vision, and the sign is written too.

import type { Frame } from '../../data/model'
import { oklch } from '../shared/colours'
import { css, type Rgb } from '../shared/inks'

const INKS: readonly Rgb[] = [
  [18, 21, 27],
  [255, 255, 255],
]

/** The origin of a frame: the installed package, the file of the reader's own code, or the library in C++. */
export function originOf({ filename, name }: Frame): string {
  const file = filename.replace(/\\/g, '/')
  const installed = /(?:site|dist)-packages\/([^/]+)/.exec(file)
  if (installed) return installed[1].replace(/\.py$/, '')
  if (/\/python3(\.\d+)?\//.test(file) || file.startsWith('<frozen')) return 'python'
  if (file.endsWith('.py') || file.startsWith('<')) return file
  return /^(?:[\w<>*& ]* )?(\w+)::/.exec(name)?.[1] ?? (file && file !== '??' ? file : 'native')
}

export class FrameColours {
  private readonly cache = new Map<string, Rgb>()

  constructor(private readonly dark: boolean) {}

  of(origin: string): Rgb {
    let rgb = this.cache.get(origin)
    if (!rgb) {
      const hash = hashOf(origin)
      const lightness = (this.dark ? 0.66 : 0.79) + 0.03 * ((hash >>> 10) % 3)
      this.cache.set(origin, (rgb = oklch(lightness, this.dark ? 0.085 : 0.08, (hash % 512) * (360 / 512))))
    }
    return rgb
  }

  /** A change: from all lost through grey to all gained. */
  change(value: number, loss: number): Rgb {
    const tilt = value + loss > 0 ? (value - loss) / (value + loss) : 0
    const lightness = this.dark ? 0.7 : 0.8
    return oklch(lightness - 0.04 * Math.abs(tilt), 0.13 * Math.abs(tilt), tilt > 0 ? 62 : 252)
  }

  get plain(): Rgb {
    return oklch(this.dark ? 0.6 : 0.86, 0.006, 250)
  }
}

/** FNV-1a: the same colour for the same name in every report. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return (hash ^ (hash >>> 15)) >>> 0
}

/** The ink with more contrast on a background: at least 4.5 to 1 on any. */
export function inkOn(ground: Rgb): string {
  const light = luminance(ground)
  const [dark, white] = INKS
  return css((light + 0.05) / (luminance(dark) + 0.05) >= 1.05 / (light + 0.05) ? dark : white)
}

/** Of WCAG: 0 black, 1 white. */
function luminance([r, g, b]: Rgb): number {
  const linear = (byte: number): number => (byte <= 10 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4)
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
}

export function blend(a: Rgb, b: Rgb, share: number): Rgb {
  return [0, 1, 2].map((i) => Math.round(a[i] + (b[i] - a[i]) * share)) as unknown as Rgb
}
