// Moments in which work ahead delays nobody: the browser has nothing to do, and the reader rests.

/** Where a browser is never idle. */
const PATIENCE_MS = 100
/** So long after the last input the reader rests. */
const REST_MS = 250

const INPUT = ['pointermove', 'pointerdown', 'wheel', 'keydown', 'input', 'scroll', 'touchmove'] as const

/** Settled when the browser has nothing to do, or after a while. */
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

  /** Settled in an idle moment before which there was no input for a while. */
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
