// The manifest in the header of blob "main" → what the page knows before it decodes any column.

import type { DecodedBlob } from './columns'
import type { OomEntry, RawDiff, RawManifest } from './contracts'
import type { DiffInfo, Manifest, OomFigures } from './model'

/** The format this page reads; a report carries its own page, so another number means a damaged or hand-made file. */
const FORMAT = 3

/** What a device has where the manifest leaves it out. */
const NOTHING = { modules: [''], shapes: [''], dtypes: [''], grad_fns: [''], ooms: [], left_out: [] }

export function readManifest(main: DecodedBlob): Manifest {
  const raw = main.header.manifest as RawManifest | undefined
  if (!raw) throw new Error('the report has no manifest')
  if (raw.format !== FORMAT) throw new Error(`the report has format ${raw.format}; this page reads ${FORMAT}`)
  return {
    ...raw,
    devices: raw.devices.map((device, index) => ({ ...NOTHING, ...device, index })),
    diff: raw.diff ? diffInfo(raw.diff) : null,
    job: raw.job ?? null,
  }
}

function diffInfo({ devices, series }: RawDiff): DiffInfo {
  return {
    devices: devices.map(([device, before, after, moments]) => ({
      device,
      before,
      after,
      moments: moments.map(([name, before, after]) => ({ name, before, after })),
    })),
    series,
  }
}

/** Null for the failures after the first 32, whose segments were not replayed. */
export function oomFigures(oom: OomEntry): OomFigures | null {
  return oom.verdict ? (oom as OomFigures) : null // all of them are there, or none
}
