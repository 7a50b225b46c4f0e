// What a report says without scripts, as its checksums cover it (snapreport/report/page_checksums.py): element names,
// attributes and text in the order of the document, without white space and control characters.

import { crc32Text } from '../data/crc32'

const HEAD = ['meta[http-equiv]', 'title', '#style']
const BODY = ['#top', 'main']

/** Whether policy, title, style sheet, header, summary and footer are as they were written. `end`: the footer. */
export function isPageIntact(end: HTMLElement): boolean {
  const { bytes } = document.documentElement.dataset
  const footer = childrenOf(end)
  // Both places of the size are changed by nobody in the same way.
  if (!bytes || end.localName !== 'footer' || !footer.includes(` ${bytes} `)) return false
  const elements = [...HEAD, ...BODY].map((selector) => document.querySelector(selector))
  if (!elements.every((element) => element !== null)) return false
  // Text outside of every element: what is left of a changed tag.
  const between = Array.from(document.body.childNodes, (node) =>
    node.nodeType === Node.TEXT_NODE ? node.nodeValue : '',
  )
  const texts = elements.map((element, i) =>
    i >= HEAD.length ? textOf(element) : (element.getAttribute('content') ?? element.textContent),
  )
  const text = [...texts, footer.replace(bytes, ''), ...between].join('').replace(/[\0- \x7f\ufffd]+/g, '')
  const [all, ascii] = (end.dataset.summary ?? '').split(' ')
  // In other encodings than these, only ASCII characters survive.
  return document.characterSet.startsWith('UTF-')
    ? crcOf(text) === all
    : crcOf(text.replace(/[^\0-\x7f]+/g, '')) === ascii
}

function textOf(node: Node): string {
  const inner = childrenOf(node)
  if (node.nodeType === Node.TEXT_NODE) return node.nodeValue!
  if (!(node instanceof Element) || node.localName === 'tbody') return inner // tbody is in no template: browsers add it
  const attributes = Array.from(node.attributes, ({ name, value }) => name + value)
  return `<${node.localName}${attributes.join('')}>${inner}`
}

function childrenOf(node: Node): string {
  let inner = ''
  for (const child of node.childNodes) inner += textOf(child)
  return inner
}

function crcOf(text: string): string {
  return crc32Text(new TextEncoder().encode(text))
}
