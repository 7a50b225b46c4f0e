// Colours of stacks: hues far apart for neighbours, even in lightness, calm in both themes.

/** Colours are made for so many stacks at least: few tables are longer, and those are painted before the table arrives. */
export const STACKS_AT_LEAST = 1 << 14

/** Golden angle: consecutive stacks, which are neighbours in the source, get hues far from each other. */
const HUE_STEP = 137.508

interface Tones {
  lightness: readonly number[]
  chroma: number
}

const LIGHT: Tones = { lightness: [0.71, 0.79, 0.64], chroma: 0.105 }
const DARK: Tones = { lightness: [0.66, 0.74, 0.58], chroma: 0.1 }

/** Colours closer than this in OKLab look alike. */
const APART = 0.065
/** From a hue that is taken to the next to try, in steps of `HUES`: prime to it, so that all are tried. */
const OTHER_HUE = 37

/** Finer steps of hue than this cannot be seen. */
const HUES = 512

let cached: { key: string; rgba: Uint8Array } | null = null

/**
 * 4 bytes per key; key 0 (no stack trace) is grey. `large`: the keys that hold most, none of which looks like another of them.
 * The result of the last call is reused.
 */
export function stackColours(count: number, dark: boolean, large: readonly number[] = []): Uint8Array {
  const key = [count, dark, large].join()
  if (cached?.key !== key) cached = { key, rgba: makeColours(count, dark, large) }
  return cached.rgba
}

function makeColours(count: number, dark: boolean, large: readonly number[]): Uint8Array {
  const { lightness, chroma } = dark ? DARK : LIGHT
  const tones = lightness.length
  const table = new Uint8Array(HUES * tones * 4)
  for (let hue = 0; hue < HUES; hue++) {
    for (let tone = 0; tone < tones; tone++) {
      table.set([...oklch(lightness[tone], chroma, (360 * hue) / HUES), 255], 4 * (hue * tones + tone))
    }
  }
  const rgba = new Uint8Array(4 * Math.max(1, count))
  for (let key = 1; key < count; key++) {
    const entry = 4 * (hueOf(key) * tones + (key % tones))
    rgba.set(table.subarray(entry, entry + 4), 4 * key)
  }
  rgba.set([...unknownColour(dark), 255])
  // A colour too close to that of a larger one gives way to the next that is not.
  const taken: [hue: number, tone: number][] = []
  for (const key of large) {
    if (key === 0 || key >= count) continue
    let [hue, tone] = [hueOf(key), key % tones]
    const isClose = ([other, its]: readonly [number, number]): boolean =>
      Math.hypot(lightness[tone] - lightness[its], 2 * chroma * Math.sin((Math.PI * (hue - other)) / HUES)) < APART
    for (let tries = 0; tries < HUES && taken.some(isClose); tries++) {
      hue = (hue + OTHER_HUE) % HUES
      tone = (tone + 1) % tones
    }
    taken.push([hue, tone])
    rgba.set(table.subarray(4 * (hue * tones + tone), 4 * (hue * tones + tone) + 4), 4 * key)
  }
  return rgba
}

/** One grey for as many keys: what is drawn before it is known what its colours stand for. */
export function greyColours(count: number, dark: boolean): Uint8Array {
  const rgba = new Uint8Array(4 * count)
  const grey = [...unknownColour(dark), 255]
  for (let key = 0; key < count; key++) rgba.set(grey, 4 * key)
  return rgba
}

function hueOf(key: number): number {
  return Math.floor((((40 + key * HUE_STEP) % 360) / 360) * HUES)
}

/** Of what has no name: no category, no stack trace. */
export function unknownColour(dark: boolean): [number, number, number] {
  return oklch(dark ? 0.525 : 0.575, 0.005, 250)
}

/** A byte that differs between neighbours: allocations of one stack stay tellable apart. */
export function shadeOf(id: number): number {
  return (Math.imul(id + 1, 0x9e3779b1) >>> 24) & 255
}

/** sRGB bytes of an OKLCH colour (lightness 0…1, chroma, hue in degrees), clipped to the gamut. */
export function oklch(lightness: number, chroma: number, hue: number): [number, number, number] {
  const angle = (hue * Math.PI) / 180
  const a = chroma * Math.cos(angle)
  const b = chroma * Math.sin(angle)
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3
  return [
    toByte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    toByte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    toByte(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ]
}

function toByte(linear: number): number {
  const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055
  return Math.round(255 * Math.min(1, Math.max(0, value)))
}

/** FNV-1a, for the same colour of the same name in every report. */
export function fnv(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return hash
}
