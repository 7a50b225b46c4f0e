// Section "stacks" → frames of a stack. Neighbouring stacks share their outer frames, so the table is kept as the trie
// that front coding describes: a node is one frame under its caller, a stack is the node it ends at. Fifty thousand
// stacks of a hundred frames are then some hundred thousand nodes, and walking up yields innermost first.

import type { DecodedBlob } from './columns'
import type { Frame, StackTrie, Stacks } from './model'

const NONE = -1
/** Bits of the column frame_flags; the rules are in snapreport/reading/noise.py alone. */
const NOISE = 1
const PYTHON = 2
const LIBRARY = 4

export function readStacks(blob: DecodedBlob): Stacks {
  const lcp = blob.u32('stack_lcp')
  const length = blob.u32('stack_length')
  const coded = blob.u32('stack_new')
  const frameOf = new Int32Array(coded.length)
  const caller = new Int32Array(coded.length)
  const leaf = new Int32Array(length.length)

  // path[depth] is the node at that depth of the stack before, outermost first.
  const path: number[] = []
  let node = 0
  let known = 0
  for (let s = 0; s < length.length; s++) {
    for (let depth = lcp[s]; depth < length[s]; depth++) {
      const back = coded[node]
      frameOf[node] = known - back
      if (back === 0) known++
      caller[node] = depth > 0 ? path[depth - 1] : NONE
      path[depth] = node++
    }
    leaf[s] = length[s] > 0 ? path[length[s] - 1] : NONE
  }
  if (node !== coded.length) throw new Error(`the stacks name ${node} frames, the report holds ${coded.length}`)
  return new StackTable(new FrameTable(blob), frameOf, caller, leaf)
}

/** Frames are made into objects when first asked for: most stacks are never looked at. */
class FrameTable {
  private readonly made: (Frame | undefined)[] = []
  readonly filenames: string[]
  readonly names: string[]
  readonly file: Uint32Array
  readonly name: Uint32Array
  readonly line: Int32Array
  readonly flags: Uint8Array
  private readonly fx: Record<string, Record<string, unknown>>

  constructor(blob: DecodedBlob) {
    this.filenames = blob.json('filenames')
    this.names = blob.json('names')
    this.file = blob.u32('frame_file')
    this.name = blob.u32('frame_name')
    this.line = blob.i32('frame_line')
    this.flags = blob.u8('frame_flags')
    this.fx = blob.has('frame_fx') ? blob.json('frame_fx') : {}
  }

  get(id: number): Frame {
    let frame = this.made[id]
    if (!frame) {
      const filename = this.filenames[this.file[id]]
      const name = this.names[this.name[id]]
      const line = this.line[id]
      frame = { filename, line, name, noise: (this.flags[id] & NOISE) !== 0, python: (this.flags[id] & PYTHON) !== 0, library: (this.flags[id] & LIBRARY) !== 0 }
      const fx = this.fx[id]
      if (fx) frame.fx = fx
      this.made[id] = frame
    }
    return frame
  }
}

class StackTable implements Stacks {
  readonly count: number
  private readonly tops = new Map<number, Frame | null>()

  constructor(
    private readonly table: FrameTable,
    private readonly frameOf: Int32Array,
    private readonly caller: Int32Array,
    private readonly leaf: Int32Array,
  ) {
    this.count = leaf.length
  }

  get trie(): StackTrie {
    const { table, frameOf, caller, leaf } = this
    return { frameOf, caller, leaf, frames: table, isNoise: (frame) => (table.flags[frame] & NOISE) !== 0, frame: (frame) => table.get(frame) }
  }

  frames(stack: number): Frame[] {
    const frames: Frame[] = []
    for (let node = this.leafOf(stack); node !== NONE; node = this.caller[node]) frames.push(this.table.get(this.frameOf[node]))
    return frames
  }

  top(stack: number): Frame | null {
    let top = this.tops.get(stack)
    if (top === undefined) {
      top = topFrame(this.frames(stack))
      this.tops.set(stack, top)
    }
    return top
  }

  private leafOf(stack: number): number {
    if (!(stack >= 0 && stack < this.count)) throw new RangeError(`stack ${stack} of ${this.count}`)
    return this.leaf[stack]
  }
}

/**
 * The frame that says most: the innermost Python frame that is not plumbing. A native-only stack (backward runs on the
 * engine's threads) gives its autograd node, else its innermost telling frame, else simply its innermost one.
 */
function topFrame(frames: Frame[]): Frame | null {
  return (
    frames.find((f) => !f.noise && f.python) ??
    frames.find((f) => isAutogradNode(f.name)) ??
    frames.find((f) => !f.noise) ??
    frames[0] ??
    null
  )
}

/** An autograd node says more about a native-only stack than the kernel in it: "MulBackward0". */
function isAutogradNode(name: string): boolean {
  return /Backward\d*(?:_apply_functional|::apply)\b|AccumulateGrad::apply\b/.test(name)
}
