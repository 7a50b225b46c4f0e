// A report's blobs from a device of trace.ts, written as the format says.

import type { DeviceData } from '../src/data/model'
import { encodeText, type TestColumn } from './encode'

/** Blob name → text. */
export function reportOf(d: DeviceData): Record<string, string> {
  const before = d.info.ghosts + d.info.freed
  const p = 'd0.'
  const u = (name: string, values: ArrayLike<number>, dtype: TestColumn['dtype'] = 'u32', more = {}): TestColumn => ({
    name: p + name,
    dtype,
    values,
    ...more,
  })
  const device: TestColumn[] = [
    u('alloc_event', d.allocEvent.subarray(before), 'i32', { transform: 'Dz' }),
    u(
      'lifetime',
      Array.from(d.freeEvent, (free, id) => (free < 0 ? 0 : free - d.allocEvent[id])),
    ),
    u(
      'requested',
      Array.from(d.freeEvent, (free, id) => (d.freeRequestedEvent[id] < 0 ? 0 : free - d.freeRequestedEvent[id] + 1)),
      'i32',
    ),
    u('size', d.size, 'f64', { layout: 'u' }),
    u('addr_hi', d.addrHi),
    u('addr_lo', d.addrLo, 'u32', { transform: 'dz', layout: 'p' }),
    u('stream', d.stream, 'u16'),
    u('pool', d.pool, 'u16'),
    u('stack', d.stack, 'u32', { layout: 'p' }),
    u('free_stack', d.freeStack),
    u('category', d.category, 'u8'),
    u('source', d.categorySource, 'u8'),
    u('context', d.context),
    u('metadata', d.metadata),
    u('other_event', [0, 1], 'i32'),
    u('other_action', [0, 1], 'u8'),
    u('other_size', [512, 1024], 'f64'),
    u('other_addr_hi', [0, 0]),
    u('other_addr_lo', [0, 0]),
    u('other_stack', [0, 0]),
    u('other_stream', [0, 0], 'u16'),
    u('other_pool', [0, 0], 'u16'),
    u('other_free', [0, 5], 'f64'),
    u('seg_addr_hi', []),
    u('seg_addr_lo', []),
    u('seg_size', [], 'f64'),
    u('seg_stream', [], 'u16'),
    u('seg_pool', [], 'u16'),
    u('seg_large', [], 'u8'),
    u('seg_expandable', [], 'u8'),
    u('seg_stack', []),
  ]
  const stacks = d.stack.reduce((most, stack) => Math.max(most, stack), 0) + 1
  const table: TestColumn[] = [
    { name: 'filenames', dtype: 'json', values: ['</script><b>.py'] },
    { name: 'names', dtype: 'json', values: Array.from({ length: stacks }, (_, i) => `f${i}`) },
    { name: 'frame_file', dtype: 'u32', values: new Uint32Array(stacks - 1) },
    { name: 'frame_name', dtype: 'u32', values: Array.from({ length: stacks - 1 }, (_, i) => i + 1) },
    { name: 'frame_line', dtype: 'i32', values: Array.from({ length: stacks - 1 }, (_, i) => i) },
    { name: 'frame_flags', dtype: 'u8', values: new Array(stacks - 1).fill(2) },
    { name: 'operators', dtype: 'json', values: [''] },
    { name: 'frame_operator', dtype: 'u32', values: new Uint32Array(stacks - 1) },
    { name: 'stack_operator', dtype: 'u32', values: new Uint32Array(stacks) },
    { name: 'stack_called', dtype: 'u32', values: new Uint32Array(stacks) },
    { name: 'stack_lcp', dtype: 'u32', values: new Uint32Array(stacks) },
    { name: 'stack_length', dtype: 'u32', values: Array.from({ length: stacks }, (_, i) => Math.min(i, 1)) },
    { name: 'stack_name', dtype: 'u32', values: Array.from({ length: stacks }, (_, i) => Math.min(i, 1)) },
    { name: 'stack_launcher', dtype: 'u32', values: new Uint32Array(stacks) },
    { name: 'posting_length', dtype: 'u32', values: new Array(stacks - 1).fill(1) },
    { name: 'posting_first', dtype: 'u32', values: Array.from({ length: stacks - 1 }, (_, i) => Math.min(i, 1)) },
    { name: 'posting_gap', dtype: 'u32', values: [] },
  ]
  const sections: Record<string, string> = { stacks: 'main', d0: 'd0' }
  const blobs: Record<string, string> = { d0: encodeText(device) }
  if (d.timeUs) {
    sections['d0.times'] = 'd0.times'
    blobs['d0.times'] = encodeText([u('time', d.timeUs, 'f64', { transform: 'dz' })])
  }
  const { info } = d
  const manifest = {
    format: 3,
    title: 'test',
    sections,
    annotations: [],
    snapshots: [{ file: 'test.pickle', bytes: 1, settings: {}, notes: {} }],
    devices: [
      {
        snapshot: 0,
        device: 3,
        kind: 'cuda',
        section: 'd0',
        events: info.events,
        allocations: info.allocations,
        ghosts: info.ghosts,
        freed: info.freed,
        start_reserved: 4096,
        time0: info.time0,
        peak_bytes: info.peak_bytes,
        peak_event: info.peak_event,
        named_bytes: info.named_bytes,
        actions: ['segment_alloc', 'oom'],
        streams: ['', '18446744073709551615'],
        pools: [''],
        categories: info.categories,
        category_sources: info.category_sources,
        contexts: [''],
        metadata: [''],
        stats: { peak_event: info.peak_event, top_stacks_at_peak: [{ bytes: 1, count: 1, stack: 1 }] },
      },
    ],
  }
  blobs.main = encodeText(table, { manifest })
  return blobs
}
