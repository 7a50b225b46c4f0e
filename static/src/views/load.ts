// Reads and runs the bundle of the other views. Both bundles have this file; they meet at one property of the window.

import type { DataClient } from '../worker/data-client'
import type { Registry } from './view'

const PLACE = 'snapreportViews'
const BLOB = 'views'

let unpacked: Promise<string> | undefined
let loading: Promise<Registry> | undefined

/** Called by the other bundle. */
export function deliver(registry: Registry): void {
  ;(window as unknown as Record<string, Registry>)[PLACE] = registry
}

/** Reads their code, to be run later. */
export function fetchViews(client: DataClient): Promise<string> {
  unpacked ??= client.code(BLOB)
  return unpacked
}

/** The views, once their bundle has run. Rejects where the report holds none or the browser refuses to run it. */
export function loadViews(client: DataClient): Promise<Registry> {
  loading ??= fetchViews(client)
    .then(run)
    .catch((error: unknown) => {
      loading = undefined // a later switch tries again
      throw error
    })
    .finally(() => (unpacked = undefined))
  return loading
}

/** An inline script runs synchronously, unlike one with an address; the page's policy allows it by its hash. */
function run(code: string): Registry {
  const script = document.createElement('script')
  script.textContent = code
  document.head.append(script)
  const registry = (window as unknown as Record<string, Registry | undefined>)[PLACE]
  if (!registry) throw new Error('the browser did not run the code of this view')
  return registry
}
