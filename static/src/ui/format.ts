// Words around numbers; the numbers themselves are written by layout/format.

import { formatBytes, formatCount } from '../layout/format'

export { formatShare } from '../layout/format'

/** "events" unless there is exactly one: plural(1, 'event') → "1 event" */
export function plural(count: number, word: string): string {
  return `${formatCount(count)} ${word}${count === 1 ? '' : 's'}`
}

/** "+1.50 GiB", "−12 B", "±0 B" */
export function formatChange(bytes: number): string {
  return bytes === 0 ? '±0 B' : `${bytes < 0 ? '−' : '+'}${formatBytes(Math.abs(bytes))}`
}

/** A moment since the first event, with every µs: 1234567 → "+1.234567 s" */
export function formatOffset(us: number): string {
  return `${us < 0 ? '−' : '+'}${(Math.abs(us) / 1e6).toFixed(6)} s`
}

/** Whether a recorder's clock counts from 1970 (in µs) rather than from the start of the machine. */
export function isDate(us: number): boolean {
  return us > 1e15 && us < 4e15
}

/** The last two parts of a path, which tell files apart without filling the line. */
export function shortPath(path: string): string {
  const parts = path.split('/')
  return parts.length <= 2 ? path : parts.slice(-2).join('/')
}

/**
 * What distinguishes a C++ function comes last in its name, and would be cut off first where there is little room:
 * "torch::autograd::generated::DivBackward0::apply(std::vector<at::Tensor>&&)" → "DivBackward0::apply". Other names stay.
 */
export function shortName(name: string): string {
  const [words, ...place] = name.split('  ')
  if (!words.includes('::')) return name
  let depth = 0
  let bare = ''
  for (const letter of words.replace(/\(anonymous namespace\)::/g, '').replace(/operator\(\)/g, 'operator')) {
    if (letter === '<') depth++
    else if (letter === '>') depth--
    else if (depth <= 0 && letter === '(') break
    else if (depth <= 0) bare += letter
  }
  // A return type may stand before it.
  const short = bare.trim().split(/\s+/).pop()!.split('::').slice(-2).join('::')
  return short === '' ? name : [short, ...place].join('  ')
}

/** With a capital letter, as a sentence begins. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

/** Percent-encoded text of a link; as it is where that is malformed. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
