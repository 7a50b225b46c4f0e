// The tree of a program's modules, and the bytes of each with all below it.

import type { ModuleMemory } from '../../data/contracts'
import type { DeviceData } from '../../data/model'
import { remembered } from '../../data/remembered'
import { firstWhere } from '../../layout/binary-search'

/** Modules that are one row: numbered siblings that are built alike, and what stands at the same place below such. */
export interface ModuleNode {
  /** "attn"; "0–9" of ten. */
  name: string
  /** The path as a query has it: "layers.*.attn". */
  path: string
  kind: string
  depth: number
  /** Rows of `ModuleMemory[]`. */
  members: number[]
  below: ModuleNode[]
}

/** The tops of the tree. folds: whether what is built alike is one row. */
export function moduleTree(modules: readonly ModuleMemory[], folds: boolean): ModuleNode[] {
  const children = new Map<string, number[]>()
  modules.forEach(({ module }, row) => {
    remembered(children, parentOf(module), (): number[] => []).push(row)
  })
  const nodes = (parents: readonly string[], above: string, depth: number): ModuleNode[] => {
    const places = new Map<string, number[]>()
    for (const parent of parents) {
      for (const row of children.get(parent) ?? []) {
        const { module, like } = modules[row]
        remembered(places, partOf((folds && like) || module), (): number[] => []).push(row)
      }
    }
    return [...places.values()].map((members) => {
      const names = [...new Set(members.map((row) => partOf(modules[row].module)))]
      const [first, last] = [names[0], names[names.length - 1]]
      const path = `${above}${names.length > 1 ? '*' : first}`
      return {
        name: names.length > 1 ? `${first}–${last}` : first,
        path,
        kind: modules[members[0]].kind ?? '',
        depth,
        members,
        below: nodes(
          members.map((row) => modules[row].module),
          `${path}.`,
          depth + 1,
        ),
      }
    })
  }
  return nodes([''], '', 0)
}

const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('.')))
const partOf = (path: string): string => path.slice(path.lastIndexOf('.') + 1)

/** Which row of the tree each allocation belongs to, and the row above each row. */
export class ModuleRows {
  /** per code of `data.module`: its row; -1: none */
  private readonly rowOf: Int32Array
  private readonly parent: Int32Array

  constructor(
    private readonly data: DeviceData,
    modules: readonly ModuleMemory[],
  ) {
    const rows = new Map(modules.map(({ module }, row) => [module, row]))
    this.rowOf = Int32Array.from(data.info.modules, (module) => rows.get(module) ?? -1)
    this.parent = Int32Array.from(modules, ({ module }) => rows.get(parentOf(module)) ?? -1)
  }

  /** Bytes live at a position, by row and category: [row * categories + category]. O(N). */
  liveAt(position: number): Float64Array {
    const { N, start, end, size, module, category, info } = this.data
    const kinds = info.categories.length
    const live = new Float64Array(this.parent.length * kinds)
    for (let id = 0; id < N; id++) {
      if (start[id] > position || end[id] <= position) continue
      const row = this.rowOf[module[id]]
      if (row >= 0) live[row * kinds + category[id]] += size[id]
    }
    return this.withBelow(live, kinds)
  }

  /** Bytes live at each of some ascending positions, by row: [row * positions + i]. O(N log positions). */
  curves(positions: ArrayLike<number>): Float64Array {
    const { N, start, end, size, module } = this.data
    const count = positions.length
    const live = new Float64Array(this.parent.length * count)
    for (let id = 0; id < N; id++) {
      const row = this.rowOf[module[id]]
      if (row < 0) continue
      const from = firstWhere(0, count, (i) => positions[i] >= start[id])
      const to = firstWhere(from, count, (i) => positions[i] >= end[id])
      if (from < count) live[row * count + from] += size[id]
      if (to < count) live[row * count + to] -= size[id]
    }
    for (let i = 0; i < live.length; i++) if (i % count > 0) live[i] += live[i - 1]
    return this.withBelow(live, count)
  }

  /** Parents come first, so that walking back adds every row to the one above when all below it is in it. */
  private withBelow(values: Float64Array, width: number): Float64Array {
    for (let row = this.parent.length - 1; row >= 0; row--) {
      const above = this.parent[row]
      for (let i = 0; above >= 0 && i < width; i++) values[above * width + i] += values[row * width + i]
    }
    return values
  }
}

/** Positions that show a trace in `count` parts: of each the one with most allocated, so that no peak is missed. O(P). */
export function peaksOfParts(allocated: ArrayLike<number>, count: number): number[] {
  const parts = Math.min(count, allocated.length)
  return Array.from({ length: parts }, (_, part) => {
    const end = Math.floor(((part + 1) * allocated.length) / parts)
    let most = Math.floor((part * allocated.length) / parts)
    for (let at = most + 1; at < end; at++) if (allocated[at] > allocated[most]) most = at
    return most
  })
}

/** The nodes that are open before anyone chooses: again and again the largest whose lines still fit into so many. */
export function openAtFirst(
  tops: readonly ModuleNode[],
  room: number,
  modules: readonly ModuleMemory[],
): Set<ModuleNode> {
  const open = new Set<ModuleNode>()
  let closed = [...tops]
  let count = tops.length
  const bytes = ({ members }: ModuleNode): number => members.reduce((sum, row) => sum + modules[row].peak_bytes, 0)
  for (;;) {
    closed = closed.filter(({ below }) => below.length > 0 && count + below.length <= room)
    if (closed.length === 0) return open
    const largest = closed.reduce((most, node) => (bytes(node) > bytes(most) ? node : most))
    open.add(largest)
    count += largest.below.length
    closed = [...closed.filter((node) => node !== largest), ...largest.below]
  }
}

/** Every node, each followed by those below it where it is open. */
export function listed(nodes: readonly ModuleNode[], isOpen: (node: ModuleNode) => boolean): ModuleNode[] {
  return nodes.flatMap((node) => [node, ...(isOpen(node) ? listed(node.below, isOpen) : [])])
}
