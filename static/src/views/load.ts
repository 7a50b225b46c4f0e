// Loads the bundle of the other views. Both bundles have this file; they meet at one property of the window.

import type { DataClient } from '../data/model'
import type { Registry } from './view'

const PLACE = 'snapreportViews'
const BLOB = 'views'

let loading: Promise<Registry> | undefined

/** Called by the other bundle. */
export function deliver(registry: Registry): void {
  ;(window as unknown as Record<string, Registry>)[PLACE] = registry
}

/** The views, once their bundle has run. Rejects where the report holds none or the browser refuses to run it. */
export function loadViews(client: DataClient): Promise<Registry> {
  loading ??= client.code(BLOB).then(run).catch((error: unknown) => {
    loading = undefined // a later switch tries again
    throw error
  })
  return loading
}

function run(code: string): Promise<Registry> {
  return new Promise((resolve, reject) => {
    const url = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }))
    const script = document.createElement('script')
    script.onload = () => {
      URL.revokeObjectURL(url)
      resolve((window as unknown as Record<string, Registry>)[PLACE])
    }
    script.onerror = () => {
      URL.revokeObjectURL(url)
      reject(new Error('the browser did not run the code of this view'))
    }
    script.src = url
    document.head.append(script)
  })
}
