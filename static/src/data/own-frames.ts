// Which frames of a stack are the program's own. The frame that names a stack is chosen in snapreport/timeline/own_code.py.

import type { Frame, Stacks } from './model'

/** Python code outside of libraries. */
export function isOwn(frame: Frame): boolean {
  return frame.python && !frame.noise && !frame.library
}

/** At most so many frames that stand for a stack: the one that names it, and the program's own, innermost first. */
export function telling(stacks: Stacks, stack: number, most: number): Frame[] {
  const top = stacks.top(stack)
  if (!top) return []
  return [...new Set([top, ...stacks.frames(stack).filter(isOwn)])].slice(0, most)
}
