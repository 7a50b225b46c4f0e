// Tiles that the file holds: the spans of the coarse levels of a large device, so that its first picture needs nothing else.

import type { Spans } from '../layout/spans'
import type { DecodedBlob } from '../data/columns'
import type { TileKey } from '../data/model'

/** The stored spans of an event tile; null when it is not among them. */
export function storedSpans(blob: DecodedBlob, key: TileKey): Spans | null {
  const p = `d${key.device}.${key.level}.${key.tile}.`
  if (!blob.has(p + 'first')) return null
  const first = blob.u16(p + 'first')
  return {
    count: first.length,
    first,
    length: blob.u16(p + 'length'),
    rep: blob.u32(p + 'rep'),
    stack: blob.u32(p + 'stack'),
    category: blob.u8(p + 'category'),
    members: blob.u32(p + 'count'),
    bytes: blob.f64(p + 'bytes'),
  }
}
