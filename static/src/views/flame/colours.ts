// Colours of frames: one hue for what belongs to one package or file, even in lightness, and a readable ink on it.
// Growth has its own: orange gained, blue lost, distinct for every kind of colour vision, and the sign is written too.

import type { Frame } from '../../data/model'
import { fnv, oklch } from '../shared/colours'
import { css, luminance, type Rgb } from '../shared/inks'
import { remembered } from '../../data/remembered'

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
    return remembered(this.cache, origin, () => {
      const plain = fnv(origin)
      const hash = (plain ^ (plain >>> 15)) >>> 0
      const lightness = (this.dark ? 0.66 : 0.79) + 0.03 * ((hash >>> 10) % 3)
      return oklch(lightness, this.dark ? 0.085 : 0.08, (hash % 512) * (360 / 512))
    })
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

/** The ink with more contrast on a background: at least 4.5 to 1 on any. */
export function inkOn(ground: Rgb): string {
  const light = luminance(ground)
  const [dark, white] = INKS
  return css((light + 0.05) / (luminance(dark) + 0.05) >= 1.05 / (light + 0.05) ? dark : white)
}
