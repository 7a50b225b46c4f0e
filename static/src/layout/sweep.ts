// A group of thin allocations → its spans: a sweep over the columns where members start or end.
//
// Members come in id order and start in that order too, so that starts need no sorting; ends are bucketed by column. What
// is live is kept per stack, so that a stretch costs as much as changes there, not as many as live. Where other keys are
// set (BandKeys), they take the place of the stacks throughout.

import { COLUMNS } from './grid'
import type { Lifetimes } from './pick'

/** Takes spans in stacking order. */
export interface SpanSink {
  add(first: number, length: number, rep: number, stack: number, members: number, bytes: number): void
  /** No more spans are needed. */
  readonly full: boolean
}

/** Cuts a group at every column where a member starts or ends, and names each stretch after its heaviest stack. */
export class GroupSweep {
  private count = 0
  private id = new Int32Array(1024)
  private c0 = new Int32Array(1024)
  private c1 = new Int32Array(1024)
  // Members that end at a column, as linked lists, and a bitmap of the columns that have any.
  private readonly endsAt = new Int32Array(COLUMNS + 1).fill(-1)
  private readonly endBits = new Uint32Array((COLUMNS >> 5) + 1)
  private nextEnd = new Int32Array(1024)
  // Live members of a stack in id order, as doubly linked lists: the first one is the stretch's representative.
  private next = new Int32Array(1024)
  private previous = new Int32Array(1024)
  private readonly stacks: LiveStacks
  /** Stack or other key of each allocation. */
  private readonly keys: Uint32Array
  // The previous stretch, which may still grow; length 0: none.
  private first = 0
  private length = 0
  private rep = 0
  private stack = 0
  private members = 0
  private bytes = 0

  constructor(
    private readonly lives: Lifetimes,
    private readonly out: SpanSink,
  ) {
    this.keys = lives.bandKeys?.keys ?? lives.stack
    this.stacks = new LiveStacks(lives.bandKeys?.matched ?? false)
  }

  /** Ids come in order, and so do their first columns. */
  add(id: number, c0: number, c1: number): void {
    if (this.count === this.id.length) this.grow()
    this.id[this.count] = id
    this.c0[this.count] = c0
    this.c1[this.count] = c1
    this.count++
  }

  close(): void {
    if (this.count === 1) {
      const id = this.id[0]
      this.out.add(this.c0[0], this.c1[0] - this.c0[0], id, this.keys[id], 1, this.lives.size[id])
    } else if (this.count > 1) this.sweep()
    this.count = 0
  }

  private sweep(): void {
    const { count, id, c0, c1, endsAt, endBits, nextEnd, stacks, keys: stack } = this
    const { size } = this.lives
    let lastEnd = 0
    for (let m = 0; m < count; m++) {
      const c = c1[m]
      nextEnd[m] = endsAt[c]
      endsAt[c] = m
      endBits[c >> 5] |= 1 << (c & 31)
      if (c > lastEnd) lastEnd = c
    }
    let live = 0
    let bytes = 0
    let born = 0
    let ending = this.endFrom(c0[0])
    for (let c = c0[0]; ; ) {
      if (ending === c) {
        for (let m = endsAt[c]; m >= 0; m = nextEnd[m]) {
          live--
          bytes -= size[id[m]]
          this.remove(m, stack[id[m]], size[id[m]])
        }
        endsAt[c] = -1
        endBits[c >> 5] &= ~(1 << (c & 31))
        if (c === lastEnd) {
          this.flush()
          return
        }
        ending = this.endFrom(c + 1)
      }
      for (; born < count && c0[born] === c; born++) {
        live++
        bytes += size[id[born]]
        this.append(born, stack[id[born]], size[id[born]])
      }
      const cut = born < count && c0[born] < ending ? c0[born] : ending
      if (live > 0) {
        const heaviest = stacks.heaviest()
        this.stretch(c, cut - c, id[stacks.head[heaviest]], heaviest, live, bytes)
      }
      c = cut
    }
  }

  /** Equal neighbours become one span: a member that ends as an equal one starts changes nothing in the picture. */
  private stretch(first: number, length: number, rep: number, stack: number, members: number, bytes: number): void {
    if (this.length > 0) {
      if (this.rep === rep && this.members === members && this.bytes === bytes && this.first + this.length === first) {
        this.length += length
        return
      }
      this.flush()
    }
    this.first = first
    this.length = length
    this.rep = rep
    this.stack = stack
    this.members = members
    this.bytes = bytes
  }

  private flush(): void {
    this.out.add(this.first, this.length, this.rep, this.stack, this.members, this.bytes)
    this.length = 0
  }

  /** First column from c on where a member ends; one there is. */
  private endFrom(c: number): number {
    let word = c >> 5
    let bits = this.endBits[word] & (-1 << (c & 31))
    while (bits === 0) bits = this.endBits[++word]
    return (word << 5) + 31 - Math.clz32(bits & -bits)
  }

  private append(m: number, stack: number, bytes: number): void {
    const { stacks } = this
    const tail = stacks.add(stack, bytes, m)
    this.previous[m] = tail
    this.next[m] = -1
    if (tail >= 0) this.next[tail] = m
  }

  private remove(m: number, stack: number, bytes: number): void {
    const { stacks, next, previous } = this
    const before = previous[m]
    const after = next[m]
    if (before >= 0) next[before] = after
    else stacks.head[stack] = after
    if (after >= 0) previous[after] = before
    else stacks.tail[stack] = before
    stacks.subtract(stack, bytes)
  }

  private grow(): void {
    for (const name of ['id', 'c0', 'c1', 'nextEnd', 'next', 'previous'] as const) {
      const larger = new Int32Array(this[name].length * 2)
      larger.set(this[name])
      this[name] = larger
    }
  }
}

/** More than all bytes of a group: added to odd keys, it puts them ahead of any even one. Sums stay whole numbers below 2**53. */
const AHEAD = 2 ** 52

/** Bytes per stack of the live members of a group, and which stack has most (ties: the lowest number). */
class LiveStacks {
  /** First and last live member of a stack; -1: none. */
  head = new Int32Array(0)
  tail = new Int32Array(0)
  private bytes = new Float64Array(0)
  private readonly live: number[] = []
  private place = new Int32Array(0)
  private best = -1
  private stale = false

  /** matched: any odd number comes before every even one. */
  constructor(private readonly matched: boolean) {}

  /** Returns the last live member before this one, or -1. */
  add(stack: number, bytes: number, member: number): number {
    if (stack >= this.head.length) this.grow(stack + 1)
    const tail = this.tail[stack]
    if (tail < 0) {
      this.place[stack] = this.live.length
      this.live.push(stack)
      this.head[stack] = member
      this.bytes[stack] = this.matched && stack & 1 ? AHEAD : 0
    }
    this.tail[stack] = member
    const total = (this.bytes[stack] += bytes)
    if (!this.stale) {
      const lead = this.best < 0 ? -1 : this.bytes[this.best]
      if (total > lead || (total === lead && stack < this.best)) this.best = stack
    }
    return tail
  }

  /** Call after the member was removed from the list. */
  subtract(stack: number, bytes: number): void {
    this.bytes[stack] -= bytes
    if (stack === this.best) this.stale = true
    if (this.head[stack] < 0) {
      const last = this.live.pop()!
      if (last !== stack) {
        this.live[this.place[stack]] = last
        this.place[last] = this.place[stack]
      }
      if (this.live.length === 0) {
        this.best = -1
        this.stale = false
      }
    }
  }

  /** The order of the others is computed again only after the heaviest one has shrunk. */
  heaviest(): number {
    if (this.stale) {
      let best = -1
      let most = -1
      for (const stack of this.live) {
        const bytes = this.bytes[stack]
        if (bytes > most || (bytes === most && stack < best)) {
          best = stack
          most = bytes
        }
      }
      this.best = best
      this.stale = false
    }
    return this.best
  }

  private grow(atLeast: number): void {
    const length = Math.max(atLeast, this.head.length * 2, 1024)
    const larger = (old: Int32Array) => {
      const array = new Int32Array(length).fill(-1)
      array.set(old)
      return array
    }
    this.head = larger(this.head)
    this.tail = larger(this.tail)
    this.place = larger(this.place)
    const bytes = new Float64Array(length)
    bytes.set(this.bytes)
    this.bytes = bytes
  }
}
