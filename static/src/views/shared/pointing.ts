// Pointing at a picture: a mouse that hovers, or a finger that rests on it.

/** Browsers scroll or click before, and open a menu of their own soon after. */
const REST_MS = 450
const MOVES_PIXELS = 8

/** On a picture that scrolls by touch. `point`: a mouse is here, or a finger rests here; `leave`: nothing points any more. */
export function onPointing(element: HTMLElement, point: (event: PointerEvent) => void, leave: () => void): void {
  element.addEventListener('pointermove', (event) => event.pointerType !== 'touch' && point(event))
  // The tooltip of a long press stays when the finger leaves.
  element.addEventListener('pointerleave', (event) => event.pointerType !== 'touch' && leave())
  element.addEventListener('pointerdown', (event) => event.pointerType === 'touch' && leave())
  onLongPress(element, point)
}

/** point: the finger rests here; it stays until the next touch. The click that follows is not passed on. */
function onLongPress(element: HTMLElement, point: (event: PointerEvent) => void): void {
  let timer = 0
  let start: PointerEvent | null = null
  let pressed = false
  const stop = (): void => {
    clearTimeout(timer)
    start = null
  }
  element.addEventListener('pointerdown', (event) => {
    stop()
    pressed = false
    if (event.pointerType !== 'touch') return
    start = event
    timer = window.setTimeout(() => {
      pressed = true
      point(event)
    }, REST_MS)
  })
  element.addEventListener('pointermove', (event) => {
    if (start && Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) > MOVES_PIXELS) stop()
  })
  element.addEventListener('pointerup', stop)
  element.addEventListener('pointercancel', stop)
  element.addEventListener('contextmenu', (event) => pressed && event.preventDefault())
  element.addEventListener(
    'click',
    (event) => {
      if (!pressed) return
      pressed = false
      event.stopImmediatePropagation()
    },
    { capture: true },
  )
}
