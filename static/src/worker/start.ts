// The worker's side: the same bundle as the page, started where there is no document.

import { BlobStore } from '../data/blobs'
import { Engine } from './engine'
import { JobList } from './jobs'
import type { FromWorker, ToWorker } from './protocol'

interface WorkerScope {
  onmessage: ((event: MessageEvent<ToWorker>) => void) | null
  postMessage(message: FromWorker, transfer: ArrayBuffer[]): void
}

export function startWorker(scope: WorkerScope): void {
  let jobs: JobList | undefined
  scope.onmessage = ({ data }) => {
    if (data.type === 'start') {
      const { texts } = data
      jobs = new JobList(new Engine(new BlobStore((name) => texts[name])), (message, transfer) =>
        scope.postMessage(message, transfer),
      )
    } else jobs?.accept(data)
  }
  // Reports that the script runs here: some policies let a worker be created and then block it silently.
  scope.postMessage({ type: 'up' }, [])
}
