// The first script of a report: unpacks the application, which lies compressed beside it, and runs it as an inline script that
// the page's policy allows by its hash. fflate's inflate takes 2 KB and 10 ms for it, works at once and in every browser;
// DecompressionStream would be native, but asynchronous and new in 2023.

import { gunzipSync, strFromU8 } from 'fflate'
import { decodeBase85 } from './data/base85'

const packed = document.querySelector('script[data-blob="application"]')!.textContent!
const script = document.createElement('script')
try {
  script.textContent = strFromU8(gunzipSync(decodeBase85(packed)))
  document.body.append(script)
} catch (error) {
  const place = document.getElementById('app')!
  place.hidden = false
  place.textContent = `This report cannot be shown: ${error instanceof Error ? error.message : String(error)}`
}
