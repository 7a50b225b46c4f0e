// Runs the code of another bundle in this page. Both bundles meet at one property of the window.

/** For the other bundle: leaves what it exports at `place`. */
export function deliverExports<T>(place: string, exports: T): void {
  ;(window as unknown as Record<string, T>)[place] = exports
}

/**
 * An inline script runs synchronously, unlike one with an address; the page's policy allows it by its hash. Throws where the
 * browser refuses to run it; `what` names the code in the error.
 */
export function runBundle<T>(code: string, place: string, what: string): T {
  const script = document.createElement('script')
  script.textContent = code
  document.head.append(script)
  const exports = (window as unknown as Record<string, T | undefined>)[place]
  if (!exports) throw new Error(`the browser did not run the code of ${what}`)
  return exports
}
