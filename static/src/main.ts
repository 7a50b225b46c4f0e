// The entry point of the bundle. The same script is the page and, started from a blob without a document, its worker.

import { installApi } from './api'
import { startApp } from './app/app'
import { reportDamagedParts, warmUp } from './app/opening'
import { type BlobTexts, openClient } from './worker/client'
import { startWorker } from './worker/jobs'

if (typeof document === 'undefined') startWorker(self as never)
else startPage()

function startPage(): void {
  // Only readable while the script runs for the first time. Empty when it was loaded by its address: then all runs here.
  const script = document.currentScript?.textContent ?? ''
  const root = document.getElementById('app')
  if (!root) throw new Error('the page has no element #app')
  const opening = openClient(blobTexts(), script).then((client) => ({ client, controller: startApp(client, root) }))
  // Removes the note that no script has run, which would be false while the report opens.
  document.querySelector('.unrun')?.remove()
  const api = installApi(window as never, opening)
  warmUp(root)
  void opening.then(({ client }) => reportDamagedParts(client, api.ready)).catch(() => {})
  api.ready.then(
    () => performance.mark('snapreport:ready'),
    (error: unknown) => {
      // The static summary above stays readable; this says why there is nothing below it.
      root.hidden = false
      const note = document.createElement('p')
      note.className = 'notice'
      note.textContent = `This report cannot be shown: ${error instanceof Error ? error.message : String(error)}.`
      root.replaceChildren(note)
      console.error(error)
    },
  )
}

/** The blobs are inert script elements of the page, read in place: nothing is stored twice. */
function blobTexts(): BlobTexts {
  const elements = new Map<string, Element>()
  for (const element of document.querySelectorAll('script[data-blob]:not([data-blob="application"])'))
    elements.set(element.getAttribute('data-blob')!, element)
  return { names: () => [...elements.keys()], text: (name) => elements.get(name)?.textContent ?? undefined }
}
