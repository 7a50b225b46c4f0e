// Text for Markdown, in which no character of a snapshot's strings may act as markup.

/** What renderers make links of by themselves. In code none of them does. */
const LINK =
  /[a-z][a-z0-9+.-]{0,30}:\/\/[^\s`]+|\bwww\.[^\s`]+|[\w.+-]{1,64}@[\w-]+\.[\w.-]+|\b(?:mailto|xmpp):[^\s`]+/gi

/** Control and format characters (bidirectional and zero-width ones among them), separators, lone surrogates. */
const HIDDEN = /\u034f|\u17b4|\u17b5|[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0]/gu

/** `text` on one line, with invisible characters escaped as in a Python string. */
export function visible(text: string): string {
  return text.replace(/\s+/g, ' ').replace(HIDDEN, (sign) => {
    const number = sign.codePointAt(0) ?? 0
    const hex = number.toString(16)
    return number < 0x100 ? `\\x${hex.padStart(2, '0')}` : `\\u${number < 0x10000 ? hex.padStart(4, '0') : `{${hex}}`}`
  })
}

/** Names as code, since most of them contain characters that are markup. A pipe would end the cell even there. */
export function code(text: string): string {
  const line = visible(text).replaceAll('`', ' ').trim()
  // GitHub's tables take the pipe after an escaped backslash for the end of a cell, also in code.
  const cell = line.replace(/\\+\|/g, (found) => `${found.slice(0, -1)}x7c`).replaceAll('|', '\\|')
  return cell === '' || cell === '–' ? cell : `\`${cell}\``
}

/** Plain words, addresses in them as code. */
export function prose(text: string): string {
  const line = visible(text)
  const parts = []
  let end = 0
  for (const found of line.matchAll(LINK)) {
    parts.push(escaped(line.slice(end, found.index)), code(found[0]))
    end = found.index + found[0].length
  }
  return [...parts, escaped(line.slice(end))].join('')
}

function escaped(text: string): string {
  return text.replace(/[\\`*_{}[\]<>#+!|~$@&]/g, '\\$&')
}
