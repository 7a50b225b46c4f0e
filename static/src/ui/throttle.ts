// A run at most every so often: at once where the last one is long ago, else as soon as it is, for all requests until then.

export class Throttle {
  private last = -Infinity
  private timer = 0

  constructor(
    private readonly run: () => void,
    private readonly everyMs: number,
  ) {}

  request(): void {
    if (this.timer !== 0) return
    const wait = this.last + this.everyMs - performance.now()
    if (wait <= 0) this.now()
    else this.timer = window.setTimeout(() => this.now(), wait)
  }

  /** Runs what waits. */
  flush(): void {
    if (this.timer === 0) return
    clearTimeout(this.timer)
    this.now()
  }

  private now(): void {
    this.timer = 0
    this.last = performance.now()
    this.run()
  }
}
