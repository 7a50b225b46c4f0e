// Stack traces as columns, and their interface.

import type { FrameJson } from './manifest-types'

export interface Frame extends FrameJson {
  /** Interpreter loop, dispatcher, unwinder: hidden by default. */
  noise: boolean
  /** A frame of the program's own language, not of C++. */
  python: boolean
  /** In code that the reader did not write: installed packages, PyTorch, Python's own. */
  library: boolean
  fx?: Record<string, unknown>
  /** Web address of the line, where the recorder noted the commit. */
  address?: string
}

/** All stacks as columns: a node is one frame under its caller, a stack is the node it ends at. A caller comes before those it calls. */
export interface StackTrie {
  /** per node: its frame */
  frameOf: Int32Array
  /** per node: the node of its caller; -1 for an outermost frame */
  caller: Int32Array
  /** per stack: the node of its innermost frame; -1 for a stack without frames */
  leaf: Int32Array
  /** per frame: indices into names and filenames, and the line */
  frames: {
    names: readonly string[]
    filenames: readonly string[]
    name: Uint32Array
    file: Uint32Array
    line: Int32Array
  }
  isNoise(frame: number): boolean
  isPython(frame: number): boolean
  frame(frame: number): Frame
}

export interface Stacks {
  count: number
  readonly trie: StackTrie
  /** Innermost first, noise included. Frames are shared objects: do not change them. */
  frames(stack: number): Frame[]
  /** The frame that names a stack: the program's own line, or the model's where that only launches; null for an empty one. */
  top(stack: number): Frame | null
  /** The program's own line that launched what `top` is; null where that is the program's own. */
  launcher(stack: number): Frame | null
}
