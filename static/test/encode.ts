// A small encoder of the file format for tests: every coding can be asked for, none is chosen cleverly.

import { brotliCompressSync, constants, crc32 } from 'node:zlib'
import type { Dtype } from '../src/data/columns'

export interface TestColumn {
  name: string
  dtype: Dtype
  /** numbers, or anything for json */
  values: ArrayLike<number> | unknown
  transform?: 'n' | 'd' | 'D' | 'nz' | 'dz' | 'Dz'
  layout?: 'v' | 'p' | 'c' | 'u'
}

const ALPHABET = Array.from({ length: 0x7f - 0x21 }, (_, i) => String.fromCharCode(0x21 + i)).filter(
  (c) => !'"&\'<>\\`~-'.includes(c),
)

export function encodeBase85(bytes: Uint8Array): string {
  const pad = (4 - (bytes.length % 4)) % 4
  let text = crc32(bytes).toString(16).padStart(8, '0') + pad
  for (let at = 0; at < bytes.length; at += 4) {
    let word = 0
    for (let i = 0; i < 4; i++) word = word * 256 + (bytes[at + i] ?? 0)
    let group = ''
    for (let i = 0; i < 5; i++) {
      group = ALPHABET[word % 85] + group
      word = Math.floor(word / 85)
    }
    text += group
  }
  return text
}

function varint(value: bigint, out: number[]): void {
  while (value > 127n) {
    out.push(Number(value & 127n) | 128)
    value >>= 7n
  }
  out.push(Number(value))
}

function encodeOne(column: TestColumn): [unknown[], number[]][] {
  const { name, dtype } = column
  if (dtype === 'json') {
    const bytes = [...new TextEncoder().encode(JSON.stringify(column.values))]
    return [[[name, dtype, 1, 'n', 'raw', bytes.length], bytes]]
  }
  const values = Array.from(column.values as ArrayLike<number>, (v) => BigInt(v))
  const negative = values.some((v) => v < 0n)
  if (column.layout === 'u') {
    const distinct = [...new Set(values)]
    const at = new Map(distinct.map((v, i) => [v, i]))
    return [
      [[name, dtype, values.length, 'n', 'u', 0], []],
      ...encodeOne({ name: name + '#v', dtype, values: distinct.map(Number), transform: negative ? 'nz' : 'n' }),
      ...encodeOne({ name: name + '#i', dtype: 'u32', values: values.map((v) => at.get(v)!), layout: 'p' }),
    ]
  }
  const transform = column.transform ?? (negative ? 'nz' : 'n')
  let stored = values
  for (let i = 0; i < 'ndD'.indexOf(transform[0]); i++) stored = stored.map((v, j) => v - (j > 0 ? stored[j - 1] : 0n))
  if (transform.endsWith('z')) stored = stored.map((v) => (v >= 0n ? 2n * v : -2n * v - 1n))
  const bytes: number[] = []
  let layout: string = column.layout ?? 'v'
  if (layout === 'c') varint(stored[0], bytes)
  else if (layout === 'p') {
    // biome-ignore lint/complexity/useMathMinMax: Math.max takes no BigInt
    const most = stored.reduce((a, b) => (b > a ? b : a), 0n)
    let planes = 1
    while (most >> BigInt(8 * planes) > 0n) planes++
    layout = `p${planes}`
    for (let p = 0; p < planes; p++) for (const v of stored) bytes.push(Number((v >> BigInt(8 * p)) & 255n))
  } else for (const v of stored) varint(v, bytes)
  return [[[name, dtype, values.length, transform, layout, bytes.length], bytes]]
}

/** The bytes of a blob before brotli. */
export function encodeBlob(columns: TestColumn[], meta: object = {}): Uint8Array {
  const encoded = columns.flatMap(encodeOne)
  const header = new TextEncoder().encode(JSON.stringify({ columns: encoded.map(([entry]) => entry), ...meta }))
  const total = encoded.reduce((sum, [, bytes]) => sum + bytes.length, 4 + header.length)
  const out = new Uint8Array(total)
  new DataView(out.buffer).setUint32(0, header.length, true)
  out.set(header, 4)
  let at = 4 + header.length
  for (const [, bytes] of encoded) {
    out.set(bytes, at)
    at += bytes.length
  }
  return out
}

export function encodeText(columns: TestColumn[], meta: object = {}, quality = 5): string {
  return encodeBase85(
    brotliCompressSync(encodeBlob(columns, meta), { params: { [constants.BROTLI_PARAM_QUALITY]: quality } }),
  )
}
