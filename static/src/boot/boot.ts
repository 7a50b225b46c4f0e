// The first script of a report: says what of its file is missing or changed, unpacks the application, which lies compressed
// in the page, and runs it as an inline script that the page's policy allows by its hash. fflate's inflate takes 2 KB and
// 10 ms for it, works at once and in every browser; DecompressionStream would be native, but asynchronous and new in 2023.
//
// It is in the head, so that it runs wherever the file is cut off.

import { crc32Text, decodeBase85 } from '../data/base85'
import { reportDamage } from '../ui/damage-note'
import { gunzipSync, strFromU8 } from 'fflate'

const SUMMARY_ONLY = 'so this page shows the summary only.'

document.documentElement.classList.add('scripted')
document.addEventListener('DOMContentLoaded', () => {
  checkPage()
  // Without styles the application has no sizes to draw into.
  const unstyled = document.querySelector('.unstyled')
  if (unstyled && getComputedStyle(unstyled).display !== 'none') return document.querySelector('.unrun')?.remove()
  const code = document.querySelector('script[data-blob="application"]')
  if (!code) return reportDamage(`The application in this file is missing, ${SUMMARY_ONLY}`)
  const script = document.createElement('script')
  try {
    script.textContent = strFromU8(gunzipSync(decodeBase85(code.textContent!)))
  } catch {
    return reportDamage(`The application in this file is damaged, ${SUMMARY_ONLY}`)
  }
  document.body.append(script)
  if (!('snapreport' in window))
    reportDamage(
      `The browser did not run the application in this file: it is too old, or a policy forbids it, ${SUMMARY_ONLY}`,
    )
})

function checkPage(): void {
  const end = document.getElementById('end')
  // The style sheet's own note says less.
  document.documentElement.classList.add('checked')
  const { bytes } = document.documentElement.dataset
  if (!end) {
    reportDamage(`This file is cut off: it was written with ${bytes} bytes, and its end is missing.`)
  } else if (!isPageIntact(end))
    reportDamage(
      'The text of this page does not match its checksum: the file is damaged, or a browser extension changed the page.',
    )
}

const HEAD = ['meta[http-equiv]', 'title', '#style']
const BODY = ['#top', 'main']

/** Whether policy, title, style sheet, header, summary and footer are as they were written. `end`: the footer. */
function isPageIntact(end: HTMLElement): boolean {
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
