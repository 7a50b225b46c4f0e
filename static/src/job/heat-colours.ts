// Colours of the heat map by level. Lightness climbs or falls all the way, so that the order is seen with any kind of colour
// vision and in grey; a scale with two ends is blue to one side and orange to the other, which all can tell apart.

import { oklch } from '../views/shared/colours'
import { mix, type Rgb } from '../views/shared/inks'

/** 256 colours, 4 bytes each; level 0, nothing known, is nearly the panel. */
export function heatPalette(isDiverging: boolean, dark: boolean, panel: Rgb, ink: Rgb): Uint8Array {
  const rgba = new Uint8Array(4 * 256)
  rgba.set([...unknownColour(panel, ink), 255], 0)
  for (let level = 1; level < 256; level++) {
    const share = (level - 1) / 254
    rgba.set([...(isDiverging ? divergingColour(2 * share - 1, dark) : heatColour(share, dark)), 255], 4 * level)
  }
  return rgba
}

export function unknownColour(panel: Rgb, ink: Rgb): Rgb {
  return mix(panel, ink, 0.06)
}

/** From 0, near the panel, to 1, which stands out most from it: yellow over green and blue to violet, the reverse in the dark. */
export function heatColour(share: number, dark: boolean): Rgb {
  const lightness = dark ? 0.24 + 0.68 * share : 0.955 - 0.63 * share
  const hue = dark ? 300 - 195 * share : 105 + 195 * share
  // Less colour at both ends, where the gamut is narrow.
  return oklch(lightness, 0.035 + 0.1 * Math.sin(Math.PI * Math.min(1, 0.15 + 0.75 * share)), hue)
}

/** From -1 (blue) over the panel's own lightness to 1 (orange). */
export function divergingColour(share: number, dark: boolean): Rgb {
  const away = Math.abs(share)
  const hue = share < 0 ? 255 : 50
  const lightness = dark ? 0.27 + (share < 0 ? 0.5 : 0.55) * away : 0.965 - (share < 0 ? 0.5 : 0.4) * away
  return oklch(lightness, 0.15 * away ** 0.8, hue)
}
