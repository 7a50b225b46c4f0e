// Steps and other annotated spans of time: the twin of snapreport/search/steps.py.

import type { Annotation, DeviceInfo } from '../data/model'
import { fold, type Range, type Text } from './fields'
import { holds } from './strings'

/** First µs, and the µs after the last. */
export type Span = [from: number, to: number]

/**
 * The annotations that a test means, a range of profiler steps or a part of a name, on the clock of the device's times.
 * Those of the device count, and those of the whole file where the device has none of its own. A START belongs to the
 * next END of its name that no later START takes. One without the other reaches to the end of the record on its side.
 * The spans come joined where they touch, in order.
 */
export function spansOf(annotations: readonly Annotation[], info: DeviceInfo, test: Range | Text): Span[] {
  const timed = annotations.filter(([, , , us, snapshot]) => us !== null && snapshot === info.snapshot)
  const own = timed.filter(([device]) => device === info.device)
  const rows = (own.length > 0 ? own : timed).slice().sort((a, b) => a[3]! - b[3]!)
  const open = new Map<string, number[]>()
  const spans: Span[] = []
  for (const [, name, stage, us] of rows) {
    if (!isMeant(name, test)) continue
    let starts = open.get(name)
    if (!starts) open.set(name, (starts = []))
    const at = us! - (info.time0 ?? 0)
    if (stage === 'START') starts.push(at)
    else if (stage === 'END') spans.push([starts.pop() ?? -Infinity, at])
  }
  for (const starts of open.values()) for (const start of starts) spans.push([start, Infinity])
  return joined(spans)
}

/** Whether a time lies in one of some joined spans: its first µs counts, its last not. */
export function isWithin(spans: readonly Span[], us: number): boolean {
  let low = 0
  let high = spans.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (spans[middle][0] <= us) low = middle + 1
    else high = middle
  }
  return low > 0 && us < spans[low - 1][1]
}

export function hasSteps(annotations: readonly Annotation[], info: DeviceInfo): boolean {
  return annotations.some(([, name, , , snapshot]) => snapshot === info.snapshot && name.startsWith('ProfilerStep#'))
}

function joined(spans: Span[]): Span[] {
  const out: Span[] = []
  for (const span of spans.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0))) {
    const last = out[out.length - 1]
    if (last && span[0] <= last[1]) last[1] = Math.max(last[1], span[1])
    else out.push([...span])
  }
  return out
}

function isMeant(name: string, test: Range | Text): boolean {
  if (test.kind === 'text') return holds(fold(name), test.parts)
  const step = /^ProfilerStep#([0-9]{1,15})$/.exec(name)
  return step !== null && inRange(Number(step[1]), test)
}

export function inRange(number: number, { low, high }: Range): boolean {
  return (low === null || number >= low) && (high === null || number <= high)
}
