// The keyboard's place across a rendering that replaces the control that has the focus.

/** Renders. A link or button within `root` that is replaced hands its focus to the one of its name; what is gone to `otherwise`. */
export function keepFocus(root: HTMLElement, otherwise: () => HTMLElement, render: () => void): void {
  const focused = document.activeElement
  if (!(focused instanceof HTMLElement) || !root.contains(focused)) return render()
  const named = (): HTMLElement[] =>
    [...root.querySelectorAll<HTMLElement>('a, button')].filter(
      ({ textContent }) => textContent === focused.textContent,
    )
  const place = named().indexOf(focused)
  render()
  if (root.contains(focused)) return
  const left = place < 0 ? [] : named()
  ;(left[Math.min(place, left.length - 1)] ?? otherwise()).focus({ preventScroll: true })
}
