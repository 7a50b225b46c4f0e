// A stack as a list, innermost frame first. Noise frames stay out until asked for, and are counted where they are left out.

import type { Frame } from '../data/model'
import { h } from './dom'
import { plural, shortPath } from './format'

export function stackList(frames: readonly Frame[], showNoise: boolean, onShowNoise: () => void): HTMLElement {
  if (frames.length === 0) return h('p', { class: 'soft' }, 'No stack was recorded.')
  const list = h('ol', { class: 'frames' })
  let hidden = 0
  const flush = (): void => {
    if (hidden === 0) return
    list.append(h('li', { class: 'noise-gap' },
      h('button', { type: 'button', class: 'link', onclick: onShowNoise, title: 'Show runtime frames (N)' }, plural(hidden, 'runtime frame'))))
    hidden = 0
  }
  for (const frame of frames) {
    if (frame.noise && !showNoise) {
      hidden++
      continue
    }
    flush()
    list.append(frameItem(frame))
  }
  flush()
  return list
}

function frameItem(frame: Frame): HTMLElement {
  const place = placeOf(frame, frame.filename)
  const short = placeOf(frame, shortPath(frame.filename))
  const item = h('li', { class: frame.noise ? 'frame noise' : 'frame' },
    h('span', { class: 'name', title: frame.name }, frame.name || '(no name)'),
    h('span', { class: 'place', title: place }, short))
  for (const [key, value] of Object.entries(frame.fx ?? {})) {
    if (value !== null && value !== '') item.append(h('span', { class: 'fx' }, `${key}: ${String(value)}`))
  }
  return item
}

/** "file:line"; native frames often have neither, which is recorded as "??" and 0. */
function placeOf(frame: Frame, file: string): string {
  if (!file || file === '??') return ''
  return frame.line > 0 ? `${file}:${frame.line}` : file
}

/** One frame per line, for a ticket. */
export function stackText(frames: readonly Frame[], showNoise: boolean): string {
  return frames
    .filter((frame) => showNoise || !frame.noise)
    .map((frame) => `${frame.name} (${placeOf(frame, frame.filename) || 'unknown'})`)
    .join('\n')
}
