// Base 85 text of a blob → bytes. The alphabet holds no character that means something to HTML, so that a blob can lie
// inside a script element as it is, and none outside ASCII, so that the file survives Latin-1.

const EXCLUDED = '"&\'<>\\`~-'
const ALPHABET = Array.from({ length: 0x7f - 0x21 }, (_, i) => String.fromCharCode(0x21 + i)).filter(
  (c) => !EXCLUDED.includes(c),
)
const INVALID = 255
const DIGIT = new Uint8Array(128).fill(INVALID)
ALPHABET.forEach((c, value) => {
  DIGIT[c.charCodeAt(0)] = value
})

/**
 * TEXT is one digit for the number of pad bytes (0 to 3), then five digits for every four bytes, most significant first.
 * White space at both ends is ignored. Throws with the place of the first bad character.
 */
export function decodeBase85(text: string): Uint8Array {
  return decodeBlobText(text).bytes
}

/** The same, and whether the bytes continue the report's shared brotli stream: the first digit is then 4 greater. */
export function decodeBlobText(text: string): { bytes: Uint8Array; primed: boolean } {
  let begin = 0
  let end = text.length
  while (begin < end && text.charCodeAt(begin) <= 0x20) begin++
  while (end > begin && text.charCodeAt(end - 1) <= 0x20) end--
  const first = text.charCodeAt(begin) - 0x30
  const primed = first >= 4
  const pad = primed ? first - 4 : first
  const digits = end - begin - 1
  if (!(pad >= 0 && pad <= 3) || digits % 5 !== 0 || (digits === 0 && pad > 0)) {
    throw new Error(`blob of ${digits} digits with pad "${text[begin] ?? ''}" is cut short or damaged`)
  }
  const words = digits / 5
  const bytes = new Uint8Array(words * 4)
  let at = begin + 1
  for (let w = 0, out = 0; w < words; w++, out += 4, at += 5) {
    const a = DIGIT[text.charCodeAt(at)]
    const b = DIGIT[text.charCodeAt(at + 1)]
    const c = DIGIT[text.charCodeAt(at + 2)]
    const d = DIGIT[text.charCodeAt(at + 3)]
    const e = DIGIT[text.charCodeAt(at + 4)]
    // A digit is below 85, so the largest sum is below 2**33: doubles hold it, int32 does not. A character beyond the
    // table reads as undefined and the sum as NaN, which fails the same test as a word that is too great.
    const word = (((a * 85 + b) * 85 + c) * 85 + d) * 85 + e
    if (!(word <= 0xffffffff) || a === INVALID || b === INVALID || c === INVALID || d === INVALID || e === INVALID) {
      throw new Error(`blob is damaged at character ${at - begin}`)
    }
    bytes[out] = word >>> 24
    bytes[out + 1] = (word >>> 16) & 255
    bytes[out + 2] = (word >>> 8) & 255
    bytes[out + 3] = word & 255
  }
  return { bytes: bytes.subarray(0, bytes.length - pad), primed }
}
