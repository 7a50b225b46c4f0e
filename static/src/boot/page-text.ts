// What a report says without scripts, as its checksums cover it (snapreport/report/page_checksums.py): element names,
// attributes and text in the order of the document, without white space and control characters.

import { crc32Text } from '../data/crc32'

/** Whether style sheet, header and summary are as they were written. `checksums`: as the document's end holds them. */
export function isPageIntact(checksums: string): boolean {
  const [all, ascii] = checksums.split(' ')
  const parts = ['style', 'top'].map((id) => document.getElementById(id))
  const [style, top] = parts
  const main = document.querySelector('main')
  if (!style || !top || !main) return false
  const text = (style.textContent + textOf(top) + textOf(main)).replace(/[\0- \x7f\ufffd]+/g, '')
  // In other encodings than these, only ASCII characters survive.
  return document.characterSet.startsWith('UTF-')
    ? crcOf(text) === all
    : crcOf(text.replace(/[^\0-\x7f]+/g, '')) === ascii
}

function textOf(node: Node): string {
  let inner = ''
  for (const child of node.childNodes) inner += textOf(child)
  if (node.nodeType === Node.TEXT_NODE) return node.nodeValue!
  if (!(node instanceof Element) || node.localName === 'tbody') return inner // tbody is in no template: browsers add it
  const attributes = Array.from(node.attributes, ({ name, value }) => name + value)
  return `<${node.localName}${attributes.join('')}>${inner}`
}

function crcOf(text: string): string {
  return crc32Text(new TextEncoder().encode(text))
}
