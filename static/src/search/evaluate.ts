// Which allocations a query matches: the twin of snapreport/search/evaluate.py. Every term is a mask over whole columns.

import type { DeviceData, DeviceInfo, Stacks, Times } from '../data/model'
import { type Choice, inParts, PART_SEPARATORS, QUERY_NOTES, type Range, type Text, type WideRange } from './fields'
import { type Node, parse, type Term } from './grammar'
import { inRange, positionsWithin } from './steps'
import { StackTexts, textsHaving } from './texts'

/** Names of the columns that a size limit may leave out. */
const LEFT_OUT: Record<string, string> = {
  addr_lo: 'this report was made without addresses',
  stream: 'this report was made without streams',
  pool: 'this report was made without pools',
  free_stack: 'this report was made without stack traces of frees',
  metadata: 'this report was made without compile contexts and user metadata',
  module: 'this report was made without modules',
  shape: 'this report was made without shapes',
  dtype: 'this report was made without dtypes',
  saved_by: 'this report was made without what autograd saves',
  times: 'this report was made without times',
}

export interface Found {
  /** 1 for each allocation that matches (length N) */
  mask: Uint8Array
  /** Why terms cannot match anything here, each once. */
  notes: string[]
}

/** Throws QueryError for a query that cannot be read. */
export function find(data: DeviceData, stacks: Stacks, info: DeviceInfo, query: string): Found {
  const tree = parse(query)
  const finder = new Finder(data, stacks, info)
  return { mask: finder.node(tree), notes: [...finder.notes] }
}

class Finder {
  readonly notes = new Set<string>()

  constructor(
    private readonly data: DeviceData,
    private readonly stacks: Stacks,
    private readonly info: DeviceInfo,
  ) {}

  /** A mask of its own, which the caller may change. */
  node(node: Node): Uint8Array {
    if (node.kind === 'term') return this.term(node)
    if (node.kind === 'not') return this.node(node.inner).map((bit) => 1 - bit)
    const isAll = node.kind === 'all'
    const mask = new Uint8Array(this.data.N).fill(isAll ? 1 : 0)
    const largest: Term[] = []
    for (const part of node.parts) {
      if (isAll && part.kind === 'term' && part.field === 'top') {
        largest.push(part)
        continue
      }
      const other = this.node(part)
      if (isAll) for (let id = 0; id < mask.length; id++) mask[id] &= other[id]
      else for (let id = 0; id < mask.length; id++) mask[id] |= other[id]
    }
    let left: Uint8Array = mask
    for (const { test } of largest) left = this.largest(test as Range, left)
    return left
  }

  /** Of the allocations in a mask so many of the largest; of equal ones the first. */
  private largest({ high }: Range, mask: Uint8Array): Uint8Array {
    const { size } = this.data
    const ids = Array.from(mask.keys()).filter((id) => mask[id] === 1)
    ids.sort((a, b) => size[b] - size[a] || a - b)
    const found = this.nothing()
    for (const id of ids.slice(0, high!)) found[id] = 1
    return found
  }

  private term({ field, test }: Term): Uint8Array {
    switch (test.kind) {
      case 'text':
        return this.text(field, test)
      case 'choice':
        return this.choice(field, test)
      case 'wide':
        return field === 'addr' ? this.addresses(test) : this.streams(test)
      case 'range':
        return this.range(field, test)
    }
  }

  // Texts

  private text(field: Term['field'], test: Text): Uint8Array {
    const { info, data } = this
    if (field === 'step' || field === 'freed-in') return this.steps(field, test)
    if (field === 'free-stack') {
      if (this.isLeftOut('free_stack')) return this.nothing()
      return lookUp(StackTexts.of(this.stacks).holding('either', test), data.freeStack)
    }
    if (field === 'file' || field === 'func') return this.ofStacks(StackTexts.of(this.stacks).holding(field, test))
    if (field === 'op') {
      const { stacks } = this
      const texts = Array.from({ length: stacks.count }, (_, stack) => stacks.called(stack))
      return this.ofStacks(textsHaving(inAll(texts, PART_SEPARATORS.op), test.parts))
    }
    if (field === 'module' || field === 'shape' || field === 'dtype') {
      if (this.isLeftOut(field)) return this.nothing()
      const texts = inAll(info[`${field}s`], PART_SEPARATORS[field])
      return lookUp(textsHaving(texts, test.parts), data[field])
    }
    if (field === 'saved') {
      return this.isLeftOut('saved_by') ? this.nothing() : lookUp(textsHaving(info.grad_fns, test.parts), data.savedBy)
    }
    if (field === 'meta') {
      this.isLeftOut('metadata')
      const mask = lookUp(textsHaving(info.contexts, test.parts), data.context)
      return addTo(mask, textsHaving(info.metadata, test.parts), data.metadata)
    }
    const mask = this.ofStacks(StackTexts.of(this.stacks).holding('either', test))
    if (field !== '') return mask
    addTo(mask, textsHaving(info.contexts, test.parts), data.context)
    addTo(mask, textsHaving(info.metadata, test.parts), data.metadata)
    addTo(mask, textsHaving(info.categories, test.parts), data.category)
    return addTo(mask, textsHaving(info.pools, test.parts), data.pool)
  }

  private ofStacks(hit: Uint8Array): Uint8Array {
    return lookUp(hit, this.data.stack)
  }

  // Names

  private choice(field: Term['field'], { names }: Choice): Uint8Array {
    const { info, data } = this
    if (field === 'category')
      return lookUp(
        info.categories.map((name) => Number(names.includes(name))),
        data.category,
      )
    if (field === 'source')
      return lookUp(
        info.category_sources.map((name) => Number(names.includes(name))),
        data.categorySource,
      )
    if (field === 'pool') {
      if (this.isLeftOut('pool')) return this.nothing()
      return lookUp(
        info.pools.map((pool) => Number(isPool(pool, names[0]))),
        data.pool,
      )
    }
    if (field === 'device') return this.nothing().fill(Number(info.kind.toLowerCase() === names[0]))
    if (field === 'origin') {
      const before = info.ghosts + info.freed
      return this.where((id) => names.includes(id < info.ghosts ? 'ghost' : id < before ? 'freed' : 'traced'))
    }
    return this.moment(names[0])
  }

  private moment(name: string): Uint8Array {
    const { info, data } = this
    const { start, end } = data
    if (name === 'oom') {
      const events = info.stats.oom_events
      if (events.length === 0) this.notes.add(QUERY_NOTES.no_oom)
      // How many of these states lie before each position.
      const before = new Uint32Array(data.P + 1)
      for (const event of events) before[event + 2] = 1
      for (let s = 1; s <= data.P; s++) before[s] += before[s - 1]
      return this.where((id) => before[end[id]] > before[start[id]])
    }
    const s = name === 'start' ? 0 : name === 'end' ? info.events : info.peak_event + 1
    return this.where((id) => start[id] <= s && end[id] > s)
  }

  // Numbers

  private range(field: Term['field'], test: Range): Uint8Array {
    const { data, info } = this
    const low = test.low ?? -Infinity
    const high = test.high ?? Infinity
    switch (field) {
      case 'size':
        return between(data.size, low, high)
      case 'stack':
        return between(data.stack, low, high)
      case 'event':
        return this.events(low, high)
      case 'time':
        return this.times((us, id) => us[data.start[id] - 1], low, high, true)
      case 'lifetime':
        return this.lifetimes(test, low, high)
      case 'line':
        return this.ofStacks(StackTexts.of(this.stacks).onLine(low, high))
      case 'free-stack':
        return this.isLeftOut('free_stack') ? this.nothing() : between(data.freeStack, low, high)
      case 'step':
      case 'freed-in':
        return this.steps(field, test)
      case 'top':
        return this.largest(test, this.nothing().fill(1))
      case 'device':
        return this.nothing().fill(Number(inRange(info.device, test)))
      default:
        if (test.unit === 'step') return this.liveIn(test)
        return this.where((id) => data.start[id] <= high + 1 && data.end[id] > Math.max(low, -1) + 1)
    }
  }

  /** What has a byte in the range; a single address is a range too. */
  private addresses({ low, high }: WideRange): Uint8Array {
    const { addrHi, addrLo, size } = this.data
    if (this.isLeftOut('addr_lo')) return this.nothing()
    const first = low === null || low < 0n ? 0n : low
    const last = high === null || high >= 1n << 64n ? (1n << 64n) - 1n : high
    if (first >> 64n > 0n || last < 0n) return this.nothing()
    const [firstHi, firstLo] = halves(first)
    const [lastHi, lastLo] = halves(last)
    return this.where((id) => {
      const hi = addrHi[id]
      const lo = addrLo[id]
      if (hi > lastHi || (hi === lastHi && lo > lastLo)) return false
      // Exact up to 2**53, and no allocation is larger.
      return (firstHi - hi) * 2 ** 32 + (firstLo - lo) < Math.max(size[id], 1)
    })
  }

  private streams({ low, high }: WideRange): Uint8Array {
    if (this.isLeftOut('stream')) return this.nothing()
    const hit = this.info.streams.map((text) => {
      if (text === '') return 0
      const number = BigInt(text)
      return Number((low === null || number >= low) && (high === null || number <= high))
    })
    return lookUp(hit, this.data.stream)
  }

  /** One event: the allocation it is about. A range: the allocations made in it. */
  private events(low: number, high: number): Uint8Array {
    const { start, end, freeRequestedEvent, P } = this.data
    if (low !== high || low < 0) return this.where((id) => start[id] - 1 >= low && start[id] - 1 <= high)
    return this.where(
      (id) => start[id] - 1 === low || freeRequestedEvent[id] === low || (end[id] < P && end[id] - 1 === low),
    )
  }

  private lifetimes({ unit }: Range, low: number, high: number): Uint8Array {
    const { start, end, P, n } = this.data
    if (unit === 'events') return this.where((id) => end[id] - start[id] >= low && end[id] - start[id] <= high)
    return this.times(
      (us, id) => us[end[id] === P ? n - 1 : end[id] - 1] - us[Math.max(start[id] - 1, 0)],
      low,
      high,
      false,
    )
  }

  /** What has `of(times, id)` from `low` to `high`; `traced`: of the traced ones only. Nothing without times. */
  private times(of: (us: Times, id: number) => number, low: number, high: number, traced: boolean): Uint8Array {
    const us = this.timeUs()
    if (!us) return this.nothing()
    const { start } = this.data
    return this.where((id) => {
      if (traced && start[id] === 0) return false
      const time = of(us, id)
      return time >= low && time <= high
    })
  }

  /** Allocated, or freed, in the steps or spans that the test selects. */
  private steps(field: 'step' | 'freed-in', test: Range | Text): Uint8Array {
    const positions = this.within(test)
    const { start, end, P } = this.data
    return field === 'step' ? lookUp(positions, start) : this.where((id) => end[id] < P && positions[end[id]] === 1)
  }

  /** Alive after any event of the steps. */
  private liveIn(test: Range): Uint8Array {
    const positions = this.within(test)
    const { start, end, P } = this.data
    const before = new Uint32Array(P + 1)
    for (let s = 0; s < P; s++) before[s + 1] = before[s] + positions[s]
    return this.where((id) => before[end[id]] > before[start[id]])
  }

  private within(test: Range | Text): Uint8Array {
    const { positions, whyNone } = positionsWithin(this.info, test)
    if (whyNone) this.notes.add(whyNone)
    return positions
  }

  /** µs since the first event; null where there are none, or while they are still being read. */
  private timeUs(): Times | null {
    if (!this.isLeftOut('times') && this.info.time0 === null) this.notes.add(QUERY_NOTES.no_times)
    return this.data.timeUs
  }

  // Masks

  private isLeftOut(column: string): boolean {
    const isLeftOut = this.info.left_out.includes(column)
    if (isLeftOut) this.notes.add(LEFT_OUT[column])
    return isLeftOut
  }

  private nothing(): Uint8Array {
    return new Uint8Array(this.data.N)
  }

  private where(is: (id: number) => boolean): Uint8Array {
    const mask = this.nothing()
    for (let id = 0; id < mask.length; id++) if (is(id)) mask[id] = 1
    return mask
  }
}

function between(column: ArrayLike<number>, low: number, high: number): Uint8Array {
  const mask = new Uint8Array(column.length)
  for (let id = 0; id < mask.length; id++) if (column[id] >= low && column[id] <= high) mask[id] = 1
  return mask
}

/** hit[code] of each row. */
function lookUp(hit: ArrayLike<number>, codes: ArrayLike<number>): Uint8Array {
  const mask = new Uint8Array(codes.length)
  for (let id = 0; id < mask.length; id++) mask[id] = hit[codes[id]]
  return mask
}

/** Adds hit[code] of each row to a mask. */
function addTo(mask: Uint8Array, hit: Uint8Array, codes: ArrayLike<number>): Uint8Array {
  if (hit.includes(1)) for (let id = 0; id < mask.length; id++) mask[id] |= hit[codes[id]]
  return mask
}

function halves(address: bigint): [hi: number, lo: number] {
  return [Number(address >> 32n), Number(address & 0xffffffffn)]
}

function isPool(pool: string, name: string): boolean {
  if (name === 'private') return pool !== '' && pool !== '(0, 0)'
  return pool === (name === 'default' ? '(0, 0)' : name === 'none' ? '' : name)
}

/** Empty ones stay empty: they have no part. */
function inAll(texts: readonly string[], separator: string): string[] {
  return texts.map((text) => text && inParts(text, separator))
}
