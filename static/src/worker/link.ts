// One way to the engine: a worker made from the page's own script, or the same work list on this thread.

import { BlobStore } from '../data/blobs'
import { Engine } from './engine'
import { JobList } from './jobs'
import type { FromWorker, ToWorker } from './protocol'

export interface Link {
  send(message: ToWorker): void
  onMessage: (message: FromWorker) => void
  /** The viewer refused to start a worker: everything runs on this thread. */
  onRefused: () => void
}

/** A worker that has sent nothing after this long, in ms, was blocked. */
const PATIENCE_MS = 4000

/**
 * A link over a worker made from `script`. Where none can be made, or it dies before its first message, everything sent so
 * far goes to the local engine instead.
 */
export function openLink(
  script: string,
  texts: Record<string, string>,
  text: (name: string) => string | undefined,
): Link {
  const worker = script ? makeWorker(script) : null
  if (!worker) {
    const link = localLink(text)
    // The caller sets its handler after this.
    if (script) queueMicrotask(() => link.onRefused())
    return link
  }
  let local: Link | undefined
  let up = false
  const sent: ToWorker[] = []
  const link: Link = {
    send(message) {
      if (local) local.send(message)
      else {
        if (!up) sent.push(message)
        worker.postMessage(message)
      }
    },
    onMessage: () => {},
    onRefused: () => {},
  }
  const fallBack = () => {
    if (up || local) return
    worker.terminate()
    local = localLink(text)
    local.onMessage = (message) => link.onMessage(message)
    for (const message of sent) local.send(message)
    sent.length = 0
  }
  worker.onerror = () => {
    if (!up && !local) link.onRefused()
    fallBack()
  }
  worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
    if (data.type === 'up') {
      up = true
      sent.length = 0
    } else link.onMessage(data)
  }
  setTimeout(fallBack, PATIENCE_MS)
  worker.postMessage({ type: 'start', texts } satisfies ToWorker)
  return link
}

function makeWorker(script: string): Worker | null {
  try {
    const url = URL.createObjectURL(new Blob([script], { type: 'text/javascript' }))
    const worker = new Worker(url)
    // The worker has its script once it answers; until then the URL has to live.
    worker.addEventListener('message', () => URL.revokeObjectURL(url), { once: true })
    return worker
  } catch {
    return null
  }
}

function localLink(text: (name: string) => string | undefined): Link {
  const link: Link = { send: (message) => jobs.accept(message), onMessage: () => {}, onRefused: () => {} }
  const jobs = new JobList(new Engine(new BlobStore(text)), (message) => link.onMessage(message))
  return link
}
