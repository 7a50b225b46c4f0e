// Reads and runs the bundle of the job view, which only job reports hold. Both bundles have this file; they meet at one property
// of the window.

import type { JobFactory } from './interface'

const PLACE = 'snapreportJob'
export const JOB_CODE = 'jobview'

/** Called by the job's bundle. */
export function deliverJob(factory: JobFactory): void {
  ;(window as unknown as Record<string, JobFactory>)[PLACE] = factory
}

/** An inline script runs synchronously, unlike one with an address; the page's policy allows it by its hash. */
export function runJob(code: string): JobFactory {
  const script = document.createElement('script')
  script.textContent = code
  document.head.append(script)
  const factory = (window as unknown as Record<string, JobFactory | undefined>)[PLACE]
  if (!factory) throw new Error('the browser did not run the code of the job view')
  return factory
}
