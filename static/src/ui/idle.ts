// Moments in which preparing work delays nobody: the browser is idle, and there was no input for a while.

/** Where a browser is never idle. */
const PATIENCE_MS = 100
/** So long without input the reader counts as resting, in ms. */
const REST_MS = 250

const INPUT = ['pointermove', 'pointerdown', 'wheel', 'keydown', 'input', 'scroll', 'touchmove'] as const

/** Settles when the browser is idle, or after a while. */
export function idle(): Promise<void> {
  return new Promise((resolve) => {
    if ('requestIdleCallback' in window) requestIdleCallback(() => resolve(), { timeout: PATIENCE_MS })
    else setTimeout(resolve)
  })
}

/** Notices input anywhere on the page from when it is made to when it is stopped. */
export class InputWatch {
  private last = -Infinity

  constructor() {
    for (const type of INPUT) addEventListener(type, this.noticed, { capture: true, passive: true })
  }

  /** Settles in an idle moment after a while without input. */
  async rest(): Promise<void> {
    for (;;) {
      await idle()
      const left = this.last + REST_MS - performance.now()
      if (left <= 0) return
      await new Promise((resolve) => setTimeout(resolve, left))
    }
  }

  stop(): void {
    for (const type of INPUT) removeEventListener(type, this.noticed, { capture: true })
  }

  private readonly noticed = (): void => {
    this.last = performance.now()
  }
}
