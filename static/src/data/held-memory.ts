// Allocated: the memory at a position, by category and by the line of the program that allocated it.

import { liveAt } from './live'
import type { DeviceData, Frame, Stacks } from './model'

export interface HeldByCategory {
  /** Index into info.categories. */
  category: number
  bytes: number
  count: number
}

export interface HeldByLine {
  /** The frame that names the stacks; null: they have none. */
  frame: Frame | null
  bytes: number
  count: number
  /** The stack of the group with most bytes, and how many stacks it has. */
  stack: number
  stacks: number
}

/** Most bytes first. */
export function heldByCategory(data: DeviceData, position: number): HeldByCategory[] {
  const rows = data.info.categories.map((_, category) => ({ category, bytes: 0, count: 0 }))
  for (const id of liveAt(data, position)) {
    rows[data.category[id]].bytes += data.size[id]
    rows[data.category[id]].count++
  }
  return rows.filter(({ count }) => count > 0).sort((a, b) => b.bytes - a.bytes || a.category - b.category)
}

/** Most bytes first. */
export function heldByLine(data: DeviceData, stacks: Stacks, position: number): HeldByLine[] {
  const ofStack = new Map<number, { bytes: number; count: number }>()
  for (const id of liveAt(data, position)) {
    const row = ofStack.get(data.stack[id])
    if (row) {
      row.bytes += data.size[id]
      row.count++
    } else ofStack.set(data.stack[id], { bytes: data.size[id], count: 1 })
  }
  const lines = new Map<string, HeldByLine & { most: number }>()
  for (const [stack, { bytes, count }] of ofStack) {
    const frame = stacks.top(stack)
    const key = frame ? `${frame.name}\n${frame.filename}\n${frame.line}` : ''
    let line = lines.get(key)
    if (!line) lines.set(key, (line = { frame, bytes: 0, count: 0, stack, stacks: 0, most: -1 }))
    line.bytes += bytes
    line.count += count
    line.stacks++
    if (bytes > line.most) {
      line.most = bytes
      line.stack = stack
    }
  }
  return [...lines.values()].sort((a, b) => b.bytes - a.bytes || a.stack - b.stack)
}
