// Text of a blob → bytes: a checksum, then base 85. The alphabet holds no character that means something to HTML, so that a blob can lie
// inside a script element as it is, and none outside ASCII, so that the file survives Latin-1.

const EXCLUDED = '"&\'<>\\`~-'
const ALPHABET = Array.from({ length: 0x7f - 0x21 }, (_, i) => String.fromCharCode(0x21 + i)).filter(
  (c) => !EXCLUDED.includes(c),
)
const INVALID = 255
/** Characters of the checksum. */
const CHECKSUM = 8
const DIGIT = new Uint8Array(256).fill(INVALID)
ALPHABET.forEach((c, value) => {
  DIGIT[c.charCodeAt(0)] = value
})

/**
 * TEXT is the CRC-32 of the bytes in eight hexadecimal digits, one digit for the number of pad bytes (0 to 3), then five
 * digits for every four bytes, most significant first. White space at both ends is ignored. Throws where anything of it
 * is missing or changed.
 */
export function decodeBase85(text: string): Uint8Array {
  // Bytes are read faster than the characters of a string. Characters other than ASCII become several invalid bytes.
  const chars = new TextEncoder().encode(text.trim())
  const pad = chars[CHECKSUM] - 0x30
  const digits = chars.length - CHECKSUM - 1
  if (!(pad >= 0 && pad <= 3) || digits % 5 !== 0 || (digits === 0 && pad > 0)) {
    throw new Error(`blob of ${digits} digits is cut short or damaged`)
  }
  const bytes = new Uint8Array((digits / 5) * 4)
  for (let at = CHECKSUM + 1, out = 0; at < chars.length; at += 5, out += 4) {
    const a = DIGIT[chars[at]]
    const b = DIGIT[chars[at + 1]]
    const c = DIGIT[chars[at + 2]]
    const d = DIGIT[chars[at + 3]]
    const e = DIGIT[chars[at + 4]]
    // A digit is below 85, so the largest sum is below 2**33: doubles hold it, int32 does not.
    const word = (((a * 85 + b) * 85 + c) * 85 + d) * 85 + e
    if ((a | b | c | d | e) > 127 || word > 0xffffffff) throw new Error(`blob is damaged at character ${at}`)
    bytes[out] = word >>> 24
    bytes[out + 1] = (word >>> 16) & 255
    bytes[out + 2] = (word >>> 8) & 255
    bytes[out + 3] = word & 255
  }
  const content = bytes.subarray(0, bytes.length - pad)
  const isZero = bytes.subarray(content.length).every((byte) => byte === 0)
  if (!isZero || crc32Text(content) !== new TextDecoder().decode(chars.subarray(0, CHECKSUM)))
    throw new Error('blob is damaged: its checksum does not match')
  return content
}

let table: Int32Array | undefined

/** Unsigned. A byte in a step takes 5 ms for a megabyte; four in a step would take 3.5, and four tables. */
function crc32(bytes: Uint8Array): number {
  table ??= makeTable()
  let crc = -1
  for (let at = 0; at < bytes.length; at++) crc = (crc >>> 8) ^ table[(crc ^ bytes[at]) & 255]
  return ~crc >>> 0
}

/** Eight hexadecimal digits, as a report writes it. */
export function crc32Text(bytes: Uint8Array): string {
  return crc32(bytes).toString(16).padStart(8, '0')
}

function makeTable(): Int32Array {
  return Int32Array.from({ length: 256 }, (_, i) => {
    let crc = i
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0)
    return crc
  })
}
