// Reads and runs the bundle of the job view, which only job reports hold. Both bundles have this file.

import { deliverExports, runBundle } from '../ui/run-bundle'
import type { JobFactory } from './interface'

const PLACE = 'snapreportJob'
export const JOB_CODE = 'jobview'

/** Called by the job's bundle. */
export function deliverJob(factory: JobFactory): void {
  deliverExports(PLACE, factory)
}

export function runJob(code: string): JobFactory {
  return runBundle(code, PLACE, 'the job view')
}
