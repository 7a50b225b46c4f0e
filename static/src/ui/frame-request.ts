// Drawing on the next animation frame: however many requests a frame has, it draws once.

export class FrameRequest {
  private id = 0

  constructor(private readonly draw: () => void) {}

  get isPending(): boolean {
    return this.id !== 0
  }

  request(): void {
    if (this.id === 0) this.id = requestAnimationFrame(() => this.now())
  }

  /** Draws at once instead, so that a resize never shows an empty canvas. */
  now(): void {
    this.cancel()
    this.draw()
  }

  cancel(): void {
    if (this.id !== 0) cancelAnimationFrame(this.id)
    this.id = 0
  }
}
