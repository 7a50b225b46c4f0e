// A menu at the pointer, or at what the keyboard is on: searches for what is there, or leaves it out.

import type { DeviceData } from '../../data/model'
import { quoted } from '../../search/grammar'
import { copyText, h } from '../../ui/dom'
import type { Store } from '../../ui/state'

export interface MenuItem {
  label: string
  run(): void
}

/** Only one is open; opening another, a press beside it, Escape and scrolling close it. */
let close: (() => void) | null = null

/** x, y: CSS pixels of the window. An empty list opens nothing. */
export function openMenu(items: readonly MenuItem[], x: number, y: number): void {
  close?.()
  if (items.length === 0) return
  const before = document.activeElement as HTMLElement | null
  const menu = h('div.context-menu', { role: 'menu', 'aria-label': 'What is here' })
  const ended = new AbortController()
  close = () => {
    close = null
    ended.abort()
    menu.remove()
  }
  const leave = (): void => {
    close?.()
    before?.focus({ preventScroll: true })
  }
  for (const { label, run } of items) {
    const choose = (): void => {
      leave()
      run()
    }
    menu.append(h('button.quiet.clip', { role: 'menuitem', title: label, onclick: choose }, label))
  }
  const buttons = [...menu.children] as HTMLElement[]
  menu.addEventListener('keydown', (event) => {
    const { key } = event
    const at = buttons.indexOf(document.activeElement as HTMLElement)
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[key]
    // No key of the page works while it is open.
    event.stopPropagation()
    if (key === 'Escape' || key === 'Tab') leave()
    else if (to !== undefined) buttons.at(to % buttons.length)!.focus()
    else return
    event.preventDefault()
  })
  document.getElementById('app')!.append(menu)
  const { offsetWidth, offsetHeight } = menu
  menu.style.left = `${Math.max(0, Math.min(x, innerWidth - offsetWidth))}px`
  menu.style.top = `${Math.max(0, Math.min(y, innerHeight - offsetHeight))}px`
  buttons[0].focus({ preventScroll: true })
  const options = { signal: ended.signal, capture: true }
  const outside = (event: Event): void => void (menu.contains(event.target as Node) || close?.())
  for (const name of ['pointerdown', 'wheel', 'contextmenu']) document.addEventListener(name, outside, options)
  // Of the window alone: captured, it would be that of every element.
  window.addEventListener('blur', () => close?.(), { signal: ended.signal })
}

/** Searching for what a term finds, finding all but that, and the term as text. */
export function termItems(store: Store, term: string | null): MenuItem[] {
  if (!term) return []
  const { query } = store.state
  const set = (next: string) => () => store.set({ query: next })
  return [
    { label: `Search for ${term}`, run: set(term) },
    ...(query && query !== term ? [{ label: `… within the query`, run: set(narrowed(query, term)) }] : []),
    { label: `Leave out ${term}`, run: set(narrowed(query === term ? '' : query, `-${grouped(term)}`)) },
    { label: 'Copy as a query', run: () => void copyText(term) },
  ]
}

/** The same for the stack, the category and the size of an allocation. */
export function allocationItems(store: Store, { stack, category, size, info }: DeviceData, id: number): MenuItem[] {
  const name = info.categories[category[id]]
  const terms = [`stack:${stack[id]}`, name ? `category:${quoted(name)}` : null, `size:${size[id]}`]
  // One is enough to copy.
  return terms.flatMap((term, i) => termItems(store, term).slice(0, i === 0 ? undefined : -1))
}

/** What both find. */
export function narrowed(query: string, term: string): string {
  return query === '' ? term : `${grouped(query)} ${grouped(term)}`
}

function grouped(query: string): string {
  return /\sOR\s/.test(query) ? `(${query})` : query
}
