// The first script of a report: unpacks the application, which lies compressed beside it, and runs it as an inline script that
// the page's policy allows by its hash. Everything here costs bytes twice, so there is no more than that.

import { decodeBase85 } from './data/base85'

interface Early {
  ready: Promise<void>
  setView?(patch: unknown): Promise<void>
}

const page = window as unknown as { snapreport: Early }
const early: Early = {
  ready: unpack().then(() => page.snapreport.ready),
  setView: (patch) => early.ready.then(() => page.snapreport.setView!(patch)),
}
page.snapreport = { ...early }
early.ready.catch((error: unknown) => {
  const place = document.getElementById('app')!
  place.hidden = false
  if (!place.firstChild) place.textContent = `This report cannot be shown: ${error instanceof Error ? error.message : String(error)}`
})

async function unpack(): Promise<void> {
  if (typeof DecompressionStream === 'undefined') throw new Error('it needs a browser of 2023 or newer. The summary below is complete')
  const packed = decodeBase85(document.querySelector('script[data-blob="application"]')!.textContent!)
  const stream = new Blob([packed as BlobPart]).stream().pipeThrough(new DecompressionStream('gzip'))
  const script = document.createElement('script')
  script.textContent = await new Response(stream).text()
  document.body.append(script)
}
