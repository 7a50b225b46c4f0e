// Section "stacks" → frames of a stack. Neighbouring stacks share their outer frames, so the table is kept as the trie
// that front coding describes: a node is one frame under its caller, a stack is the node it ends at. Fifty thousand
// stacks of a hundred frames are then some hundred thousand nodes, and walking up yields innermost first. Which frame a node
// is, the file says by posting lists: the nodes of each frame.

import type { DecodedBlob } from './columns'
import type { Frame, StackTrie, Stacks } from './model'
import { type LineAddress, lineAddress } from './source-links'

const NONE = -1
/** Bits of the column frame_flags; the rules are in snapreport/reading/noise.py alone. */
const NOISE = 1
const PYTHON = 2
const LIBRARY = 4

export function readStacks(blob: DecodedBlob): Stacks {
  const lcp = blob.u32('stack_lcp')
  const length = blob.u32('stack_length')
  const frameOf = framesOfNodes(blob)
  const caller = new Int32Array(frameOf.length)
  const leaf = new Int32Array(length.length)

  // path[depth] is the node at that depth of the stack before, outermost first.
  const path: number[] = []
  let node = 0
  for (let s = 0; s < length.length; s++) {
    for (let depth = lcp[s]; depth < length[s]; depth++) {
      caller[node] = depth > 0 ? path[depth - 1] : NONE
      path[depth] = node++
    }
    leaf[s] = length[s] > 0 ? path[length[s] - 1] : NONE
  }
  if (node !== caller.length) throw new Error(`the stacks name ${node} frames, the report holds ${caller.length}`)
  const named = {
    frame: blob.u32('stack_name'),
    launcher: blob.u32('stack_launcher'),
    operator: blob.u32('stack_operator'),
    called: blob.u32('stack_called'),
  }
  return new StackTable(new FrameTable(blob), frameOf, caller, leaf, named)
}

/** Stored are differences: of a frame's first node to that of the frame before, of each further one to the one before it. */
function framesOfNodes(blob: DecodedBlob): Int32Array {
  const length = blob.u32('posting_length')
  const first = blob.u32('posting_first')
  const gap = blob.u32('posting_gap')
  const frameOf = new Int32Array(length.reduce((sum, nodes) => sum + nodes, 0))
  let read = 0
  let begin = 0
  for (let frame = 0; frame < length.length; frame++) {
    begin += first[frame]
    for (let i = 0, node = begin; i < length[frame]; i++) {
      if (i > 0) node += gap[read++]
      frameOf[node] = frame
    }
  }
  return frameOf
}

/** Of each path, as few of its last parts as no other path ends in: what tells files apart without filling the line. */
export function distinctEnds(paths: readonly string[]): string[] {
  const ends = paths.map((path) => path.split(/[\\/]/).pop()!)
  for (let parts = 2; ; parts++) {
    const same = new Map<string, number>()
    for (const end of ends) same.set(end, (same.get(end) ?? 0) + 1)
    let isLonger = false
    paths.forEach((path, i) => {
      if (same.get(ends[i]) === 1) return
      const end = path.split(/[\\/]/).slice(-parts).join('/')
      if (end !== ends[i]) isLonger = true
      ends[i] = end
    })
    if (!isLonger) return ends
  }
}

/** Frames become objects when first requested: most stacks are never opened. */
class FrameTable {
  private readonly cache: (Frame | undefined)[] = []
  readonly filenames: string[]
  readonly names: string[]
  readonly file: Uint32Array
  readonly name: Uint32Array
  readonly line: Int32Array
  readonly flags: Uint8Array
  readonly operators: string[]
  private readonly operator: Uint32Array
  private readonly files: string[]
  private readonly fx: Record<string, Record<string, unknown>>
  private readonly address: LineAddress

  constructor(blob: DecodedBlob) {
    this.filenames = blob.json('filenames')
    this.names = blob.json('names')
    this.file = blob.u32('frame_file')
    this.name = blob.u32('frame_name')
    this.line = blob.i32('frame_line')
    this.flags = blob.u8('frame_flags')
    this.operators = blob.json('operators')
    this.operator = blob.u32('frame_operator')
    this.files = distinctEnds(this.filenames)
    this.fx = blob.has('frame_fx') ? blob.json('frame_fx') : {}
    this.address = lineAddress(blob.has('source_links') ? blob.json('source_links') : [])
  }

  get(id: number): Frame {
    let frame = this.cache[id]
    if (!frame) {
      const filename = this.filenames[this.file[id]]
      const name = this.names[this.name[id]]
      const line = this.line[id]
      frame = {
        filename,
        line,
        name,
        noise: (this.flags[id] & NOISE) !== 0,
        python: (this.flags[id] & PYTHON) !== 0,
        library: (this.flags[id] & LIBRARY) !== 0,
        operator: '',
        file: this.files[this.file[id]],
      }
      if (!frame.python) frame.operator = this.operators[this.operator[id]]
      const fx = this.fx[id]
      if (fx) frame.fx = fx
      const address = this.address(filename, line, frame.python && !frame.noise && !frame.library)
      if (address) frame.address = address
      this.cache[id] = frame
    }
    return frame
  }
}

class StackTable implements Stacks {
  readonly count: number

  constructor(
    private readonly table: FrameTable,
    private readonly frameOf: Int32Array,
    private readonly caller: Int32Array,
    private readonly leaf: Int32Array,
    /**
     * Places in the stacks, 1 the innermost and 0 none, and indices of operators; computed in
     * snapreport/timeline/own_code.py and operators.py alone.
     */
    private readonly named: {
      readonly frame: Uint32Array
      readonly launcher: Uint32Array
      readonly operator: Uint32Array
      readonly called: Uint32Array
    },
  ) {
    this.count = leaf.length
  }

  get trie(): StackTrie {
    const { table, frameOf, caller, leaf } = this
    return {
      frameOf,
      caller,
      leaf,
      frames: table,
      isNoise: (frame) => (table.flags[frame] & NOISE) !== 0,
      isPython: (frame) => (table.flags[frame] & PYTHON) !== 0,
      frame: (frame) => table.get(frame),
    }
  }

  frames(stack: number): Frame[] {
    const frames: Frame[] = []
    for (let node = this.leafOf(stack); node !== NONE; node = this.caller[node])
      frames.push(this.table.get(this.frameOf[node]))
    return frames
  }

  top(stack: number): Frame | null {
    return this.frameAt(stack, this.named.frame[stack])
  }

  launcher(stack: number): Frame | null {
    return this.frameAt(stack, this.named.launcher[stack])
  }

  operator(stack: number): string {
    return this.table.operators[this.named.operator[stack]] ?? ''
  }

  called(stack: number): string {
    return this.table.operators[this.named.called[stack]] ?? ''
  }

  private frameAt(stack: number, place: number): Frame | null {
    let node = this.leafOf(stack)
    for (let step = 1; step < place && node !== NONE; step++) node = this.caller[node]
    return place > 0 && node !== NONE ? this.table.get(this.frameOf[node]) : null
  }

  private leafOf(stack: number): number {
    if (!(stack >= 0 && stack < this.count)) throw new RangeError(`stack ${stack} of ${this.count}`)
    return this.leaf[stack]
  }
}
