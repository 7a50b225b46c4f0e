// Numbers as people read them. Always the same, whatever the reader's locale: reports are compared and quoted.
// Sizes, counts and shares follow snapreport/number_format.py to the letter; a test compares the two.

import vocabulary from '../../../snapreport/vocabulary.json'

const UNITS = vocabulary.shown_units

/** 1234567 → "1,234,567". */
export function formatCount(n: number): string {
  const [whole, fraction] = String(Math.abs(n)).split('.')
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',')
  return (n < 0 ? '-' : '') + grouped + (fraction ? '.' + fraction : '')
}

/** The state after an event: "at event 1,234"; -1: "before the first event". */
export function atEvent(event: number): string {
  return event < 0 ? 'before the first event' : `at event ${formatCount(event)}`
}

/** Three significant digits at least in the largest binary unit that fits: "1.25 GiB", "512 B", "63.6 MiB". */
export function formatBytes(bytes: number): string {
  const size = Math.abs(bytes)
  let unit = 0
  // 1023.6 KiB would round to "1024 KiB": go up where the rounded number would.
  while (unit < UNITS.length - 1 && size / 1024 ** unit >= 1023.5) unit++
  if (unit === 0) return `${bytes} B`
  const value = size / 1024 ** unit
  const text = value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2)
  return `${bytes < 0 ? '-' : ''}${text} ${UNITS[unit]}`
}

/** "1.25 GiB (1,342,177,280 B)": for places where the exact number matters. */
export function formatBytesExact(bytes: number): string {
  return Math.abs(bytes) < 1024 ? formatBytes(bytes) : `${formatBytes(bytes)} (${formatCount(bytes)} B)`
}

/** A percentage of two figures at most: "61%", "0.4%", "<0.1%"; "0%" of nothing. */
export function formatShare(part: number, whole: number): string {
  if (!whole || !part) return '0%'
  const percent = (100 * part) / whole
  if (percent < 0.05) return '<0.1%'
  return `${percent.toFixed(percent >= 9.95 ? 0 : 1)}%`
}

/** Bytes in a unit that was chosen already, with no more decimals than given. */
export function bytesInUnit(bytes: number, unit: number, decimals: number): string {
  const text = (bytes / 1024 ** unit).toFixed(decimals)
  const [whole, fraction] = text.split('.')
  const trimmed = fraction?.replace(/0+$/, '')
  return `${formatCount(Number(whole))}${trimmed ? '.' + trimmed : ''} ${UNITS[unit]}`
}

/** A length of time: "850 µs", "12.3 ms", "4.56 s", "3 min 20 s", "2 h 05 min". */
export function formatDuration(us: number): string {
  const t = Math.abs(us)
  const sign = us < 0 ? '-' : ''
  if (t < 999.5) return `${sign}${Math.round(t)} µs`
  if (t < 999_500) return `${sign}${significant(t / 1e3)} ms`
  if (t < 60e6 - 5e3) return `${sign}${significant(t / 1e6)} s`
  const seconds = Math.round(t / 1e6)
  if (seconds < 3600) return `${sign}${Math.floor(seconds / 60)} min ${pad(seconds % 60)} s`
  const minutes = Math.round(seconds / 60)
  return `${sign}${Math.floor(minutes / 60)} h ${pad(minutes % 60)} min`
}

/** A moment on the recorder's clock, when that is µs since 1970 as torch's are: "2025-03-01 12:34:56.789012 UTC". */
export function formatMoment(us: number): string {
  const seconds = Math.floor(us / 1e6)
  const date = new Date(seconds * 1000)
  if (Number.isNaN(date.getTime())) return `${formatCount(us)} µs`
  return `${date.toISOString().slice(0, 19).replace('T', ' ')}.${String(Math.floor(us - seconds * 1e6)).padStart(6, '0')} UTC`
}

/** A 64-bit address from its halves: "0x7f1c2a000000". */
export function formatAddress(hi: number, lo: number): string {
  return '0x' + ((BigInt(hi) << 32n) | BigInt(lo)).toString(16)
}

/** Three significant digits without trailing zeros. */
function significant(x: number): string {
  return String(Number(x.toPrecision(3)))
}

function pad(n: number): string {
  return String(n).padStart(2, '0')
}
