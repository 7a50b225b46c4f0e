// Reads and runs the bundle of the other views. Both bundles have this file; they meet at one property of the window.

import { deliverExports, runBundle } from '../ui/run-bundle'
import type { DataClient } from '../worker/data-client'
import type { Registry } from './view'

const PLACE = 'snapreportViews'
const BLOB = 'views'

let unpacked: Promise<string> | undefined
let loading: Promise<Registry> | undefined

/** Called by the other bundle. */
export function deliver(registry: Registry): void {
  deliverExports(PLACE, registry)
}

/** Reads their code, to be run later. */
export function fetchViews(client: DataClient): Promise<string> {
  unpacked ??= client.code(BLOB)
  return unpacked
}

/** The views, once their bundle has run. Rejects where the report holds none or the browser refuses to run it. */
export function loadViews(client: DataClient): Promise<Registry> {
  loading ??= fetchViews(client)
    .then((code) => runBundle<Registry>(code, PLACE, 'this view'))
    .catch((error: unknown) => {
      loading = undefined // a later switch tries again
      throw error
    })
    .finally(() => (unpacked = undefined))
  return loading
}
