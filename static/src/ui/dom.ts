// Elements without markup: strings from a snapshot become text nodes and nothing else.

type Child = Node | string | null | false
type Attribute = string | number | boolean | null | ((event: never) => void)
type Attributes = Record<string, Attribute>
type Tag = keyof HTMLElementTagNameMap
type ElementOf<T extends string> = T extends Tag
  ? HTMLElementTagNameMap[T]
  : T extends `${infer K extends Tag}.${string}`
    ? HTMLElementTagNameMap[K]
    : never

/**
 * h('button.tool', { onclick: run }, 'Fit'): a tag, its classes, attributes where there are any, and children. A null or false
 * attribute or child is left out; buttons submit nothing unless they say so.
 */
export function h<T extends Tag | `${Tag}.${string}`>(
  selector: T,
  first: Attributes | Child = null,
  ...others: Child[]
): ElementOf<T> {
  const [tag, ...classes] = selector.split('.')
  const element = document.createElement(tag)
  if (classes.length) element.className = classes.join(' ')
  if (tag === 'button') element.setAttribute('type', 'button')
  if (first === null || typeof first !== 'object' || first instanceof Node) append(element, first)
  else
    for (const [name, value] of Object.entries(first)) {
      if (value === null || value === false) continue
      if (typeof value === 'function') element.addEventListener(name.slice(2), value as EventListener)
      else element.setAttribute(name, value === true ? '' : String(value))
    }
  append(element, ...others)
  return element as ElementOf<T>
}

export function append(parent: Node, ...children: Child[]): void {
  for (const child of children) {
    if (child === null || child === false) continue
    parent.appendChild(typeof child === 'string' ? document.createTextNode(child) : child)
  }
}

/** An element of a picture. */
export function svg(tag: string, attributes: Record<string, string | number>, ...children: SVGElement[]): SVGElement {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag)
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value))
  append(element, ...children)
  return element
}

export function svgText(x: number, y: number, anchor: 'start' | 'middle' | 'end', text: string): SVGElement {
  const element = svg('text', { x, y, 'text-anchor': anchor })
  element.textContent = text
  return element
}

/** Changes the text of an element. The same text again would be laid out again. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text
}

/** Replaces everything inside an element. */
export function fill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren()
  append(parent, ...children)
}

/** Puts text on the clipboard, also where the page may not use the clipboard interface. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    const area = h('textarea', { class: 'offscreen', readonly: true })
    area.value = text
    document.body.appendChild(area)
    area.select()
    const copied = document.execCommand('copy')
    area.remove()
    return copied
  }
}

/** A button that copies and says so for a moment. */
export function copyButton(label: string, text: () => string, title = label): HTMLButtonElement {
  const button = h('button', { class: 'copy', title })
  button.textContent = label
  button.addEventListener('click', () => {
    void copyText(text()).then((copied) => {
      button.style.minWidth = `${button.offsetWidth}px` // what stands beside it does not move
      button.textContent = copied ? 'Copied' : 'Not allowed'
      setTimeout(() => (button.textContent = label), 1200)
    })
  })
  return button
}
