// When a drawn frame has reached the screen, as closely as a page can know.

/** Where a browser does not report its first paint, in ms. */
const PATIENCE_MS = 1000

/**
 * Calls back once a frame drawn before this call is on the screen: a frame later, and not before the page's first paint.
 * A browser that has just started accepts frames 100 to 300 ms before it can show any.
 */
export function whenPresented(then: () => void): void {
  const deadline = performance.now() + PATIENCE_MS
  const look = (now: number): void => {
    // Polled rather than observed: the observer is called up to 300 ms late while a browser starts.
    if (now > deadline || performance.getEntriesByType('paint').length > 0)
      setTimeout(then) // not within this frame
    else requestAnimationFrame(look)
  }
  requestAnimationFrame(() => requestAnimationFrame(look))
}
