// Parses where to go: the number of an event, or a time since the first one.

import type { DeviceData } from '../../data/model'
import { usToEvent } from '../../layout/time'

const UNITS: Record<string, number> = { us: 1, µs: 1, μs: 1, ms: 1e3, s: 1e6, min: 60e6, h: 3600e6 }

/** The event that text names, clamped to the trace; a string says why there is none. "1,234" is an event, "+1.5 s" a time. */
export function readPlace(text: string, data: Pick<DeviceData, 'n' | 'clockUs'>): number | string {
  const whole = /^#?\s*(-?\d[\d,_]*)$/.exec(text.trim())
  if (whole) return within(Number(whole[1].replace(/[,_]/g, '')), data.n)
  const time = /^\+?\s*(\d[\d,_]*(?:\.\d+)?)\s*(us|µs|μs|ms|s|min|h)$/i.exec(text.trim())
  if (!time) return 'an event like 1234, or a time since the first event like 1.5 s'
  if (!data.clockUs) return 'this report holds no times'
  const us = Number(time[1].replace(/[,_]/g, '')) * UNITS[time[2].toLowerCase()]
  return within(Math.floor(usToEvent(data.clockUs, us)), data.n)
}

function within(event: number, n: number): number {
  return Math.max(0, Math.min(n - 1, event))
}
