// A stretch of addresses as a row of pixels. Blocks thinner than a pixel are mixed by their shares of it, with one exception:
// anything allocated stays visible.

import type { Rgb } from '../shared/inks'

/** Below this share of a pixel, what is allocated there is drawn as if it had this share. */
const MIN_SHARE = 0.4

/** Runs of addresses painted in order; a row is begun, filled and read out. */
export class RowRaster {
  private width = 0
  private from = 0
  private perPixel = 1
  /** Sums by pixel of share times colour, and of shares: what is allocated, and all else. */
  private held = new Float32Array(0)
  private rest = new Float32Array(0)

  /** A row of `width` pixels from address `from` on. */
  begin(width: number, from: number, perPixel: number): void {
    this.width = width
    this.from = from
    this.perPixel = perPixel
    if (this.held.length < 4 * width) {
      this.held = new Float32Array(4 * width)
      this.rest = new Float32Array(4 * width)
    } else {
      this.held.fill(0, 0, 4 * width)
      this.rest.fill(0, 0, 4 * width)
    }
  }

  /** Addresses [start, end) in one colour. */
  add(start: number, end: number, [r, g, b]: Rgb, isHeld: boolean): void {
    const sums = isHeld ? this.held : this.rest
    const a = Math.max(0, (start - this.from) / this.perPixel)
    const z = Math.min(this.width, (end - this.from) / this.perPixel)
    for (let pixel = Math.floor(a); pixel < z; pixel++) {
      const share = Math.min(z, pixel + 1) - Math.max(a, pixel)
      if (share <= 0) continue
      const at = 4 * pixel
      sums[at] += share * r
      sums[at + 1] += share * g
      sums[at + 2] += share * b
      sums[at + 3] += share
    }
  }

  /** Writes the row as 32-bit words; a pixel with nothing in it gets `empty`. */
  write(out: Uint32Array, offset: number, empty: number): void {
    const { held, rest } = this
    for (let pixel = 0; pixel < this.width; pixel++) {
      const at = 4 * pixel
      const h = held[at + 3]
      const f = rest[at + 3]
      if (h + f <= 0) {
        out[offset + pixel] = empty
        continue
      }
      const share = h === 0 ? 0 : f === 0 ? 1 : Math.max(h / (h + f), MIN_SHARE)
      const byHeld = h === 0 ? 0 : share / h
      const byRest = f === 0 ? 0 : (1 - share) / f
      const r = held[at] * byHeld + rest[at] * byRest
      const g = held[at + 1] * byHeld + rest[at + 1] * byRest
      const b = held[at + 2] * byHeld + rest[at + 2] * byRest
      out[offset + pixel] = ((255 << 24) | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r)) >>> 0
    }
  }
}
