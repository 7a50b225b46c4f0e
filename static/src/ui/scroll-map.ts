// From a scroll bar to rows. Browsers draw no element taller than some 17 to 33 million pixels, which a million rows reach:
// beyond a limit the bar is shorter than the rows are, and a place on it stands for many rows.

/** Height at which the bar stops growing: under the least limit of the browsers. */
const TALLEST = 8_000_000

/**
 * `top` is the offset in pixels of the first visible row line, in rows as tall as they would be. Where the bar is shortened,
 * small moves of it (wheel, keys) move the rows pixel by pixel all the same, and only large ones (the thumb) are scaled.
 */
export class ScrollMap {
  top = 0
  private full = 0
  private view = 0
  private bar = 0

  /** Height of the element to scroll, in pixels. */
  get height(): number {
    return Math.min(this.full, TALLEST)
  }

  resize(full: number, view: number): void {
    this.full = full
    this.view = view
    this.moveTo(this.top)
  }

  /** Shows an offset; the bar then has to be put at `place`. */
  moveTo(top: number): void {
    this.top = Math.max(0, Math.min(this.full - this.view, top))
    this.bar = this.place
  }

  /** The place of the bar for the shown rows. */
  get place(): number {
    if (this.full <= TALLEST) return this.top
    return (this.top / (this.full - this.view)) * (TALLEST - this.view)
  }

  /** The bar was moved. */
  scrolled(bar: number): void {
    const by = bar - this.bar
    this.bar = bar
    if (this.full <= TALLEST) this.top = bar
    else if (Math.abs(by) < 2 * this.view) this.top += by
    else this.top = (bar / (TALLEST - this.view)) * (this.full - this.view)
    this.top = Math.max(0, Math.min(this.full - this.view, this.top))
  }

  /** The bar is at an end that the rows have not reached, or lags behind them: it should be put at `place`. */
  get isOff(): boolean {
    return Math.abs(this.bar - this.place) > 1
  }

  /** The bar cannot move further in a direction in which there are rows. */
  get isStuck(): boolean {
    return (
      (this.bar <= 0 && this.top > 0) || (this.bar >= this.height - this.view - 1 && this.top < this.full - this.view)
    )
  }

  /** The bar is where it was put, within the browser's rounding. */
  adopt(bar: number): void {
    this.bar = bar
  }

  /** Offset of a row line inside the element, in pixels. */
  inside(offset: number): number {
    return this.bar + (offset - this.top)
  }
}
