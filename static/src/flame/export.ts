// The tree in the formats of other tools: folded stacks and speedscope's JSON. Both name the outermost frame first,
// whichever way round the tree is shown.

import type { Frame } from '../data/model'
import type { Paths } from './paths'
import type { FlameTree, Node } from './tree'
import { remembered } from '../data/remembered'

export interface ExportNames {
  /** A frame that stands for a key. */
  frameOf(key: number): Frame
  /** Frames that differ only in their lines stay separate. */
  lines: boolean
}

export const NO_STACK = '[no stack trace]'

/** Every path once: its keys, outermost first, and its weights. */
interface Folded {
  keys: number[]
  value: number
  loss: number
}

function foldedPaths(tree: FlameTree, { low, high }: Node): Folded[] {
  const folded: Folded[] = []
  for (let row = low; row < high; row++) {
    const { value, loss } = tree.sum(row, row + 1)
    const length = tree.length(row)
    const before = folded[folded.length - 1]
    // Rows of one path are neighbours.
    if (before && row > low && tree.length(row - 1) === length && tree.common[row] === length) {
      before.value += value
      before.loss += loss
      continue
    }
    const keys = Array.from({ length }, (_, depth) => tree.key(row, depth))
    folded.push({ keys: isLeafFirst(tree.paths) ? keys.reverse() : keys, value, loss })
  }
  return folded.filter(({ value, loss }) => value > 0 || loss > 0)
}

function isLeafFirst(paths: Paths): boolean {
  return paths.options.root === 'leaf'
}

/** "outermost;…;innermost weight" per line, sorted; of growth two weights, before and after, of which the smaller is 0. */
export function foldedText(tree: FlameTree, node: Node, names: ExportNames): string {
  const growth = tree.weights.loss !== null
  const lines = foldedPaths(tree, node).map(({ keys, value, loss }) => {
    const frames = keys.length ? keys.map((key) => foldedName(names.frameOf(key), names.lines)).join(';') : NO_STACK
    return growth ? `${frames} ${loss} ${value}` : `${frames} ${value}`
  })
  return lines
    .sort()
    .map((line) => line + '\n')
    .join('')
}

/** "name (file:line)" without what would end a frame or a line. */
function foldedName({ name, filename, line }: Frame, lines: boolean): string {
  const file = filename && filename !== '??' ? ` (${filename}${lines && line > 0 ? `:${line}` : ''})` : ''
  return `${name || '?'}${file}`.replace(/;/g, ',').replace(/[\r\n]+/g, ' ')
}

/** A file that speedscope opens. Growth becomes two profiles: bytes gained and bytes lost. */
export function speedscopeJson(tree: FlameTree, node: Node, names: ExportNames, title: string): string {
  const index = new Map<number, number>()
  const frames: { name: string; file?: string; line?: number }[] = []
  const frameIndex = (key: number): number =>
    remembered(index, key, () => {
      const { name, filename, line } = names.frameOf(key)
      const place = filename && filename !== '??' && { file: filename, ...(names.lines && line > 0 && { line }) }
      return frames.push({ name: name || '?', ...place }) - 1
    })
  let noStack = -1
  const paths = foldedPaths(tree, node).map(({ keys, value, loss }) => {
    if (keys.length === 0 && noStack < 0) noStack = frames.push({ name: NO_STACK }) - 1
    return { sample: keys.length ? keys.map(frameIndex) : [noStack], value, loss }
  })
  const { measure, loss } = tree.weights
  const unit = ['live', 'allocated', 'growth', 'reserved'].includes(measure) ? 'bytes' : 'none'
  const profile = (name: string, weight: 'value' | 'loss') => {
    const rows = paths.filter((path) => path[weight] > 0)
    const weights = rows.map((path) => path[weight])
    return {
      type: 'sampled',
      name,
      unit,
      startValue: 0,
      endValue: weights.reduce((sum, w) => sum + w, 0),
      samples: rows.map(({ sample }) => sample),
      weights,
    }
  }
  return JSON.stringify({
    $schema: 'https://www.speedscope.app/file-format-schema.json',
    exporter: 'snapreport',
    name: title,
    activeProfileIndex: 0,
    shared: { frames },
    profiles: loss
      ? [profile(`${title}, gained`, 'value'), profile(`${title}, lost`, 'loss')]
      : [profile(title, 'value')],
  })
}
