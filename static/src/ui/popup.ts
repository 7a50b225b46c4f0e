// What a button opens: it closes by the button, Escape and a press outside.

export class Popup {
  /** `root` is inside; the button may be, too. `show`: called with whether it is open now. */
  constructor(
    private readonly root: HTMLElement,
    private readonly button: HTMLButtonElement,
    private readonly show: (isOpen: boolean) => void,
  ) {
    button.setAttribute('aria-expanded', 'false')
    button.addEventListener('click', () => this.toggle())
    const closeByKey = (event: KeyboardEvent): void => {
      if (event.key === 'Escape' && !event.defaultPrevented && this.close()) event.stopImmediatePropagation()
    }
    root.addEventListener('keydown', closeByKey)
    // Wherever the focus is: what lies on top closes before what is below it.
    document.addEventListener('keydown', closeByKey)
    document.addEventListener('pointerdown', ({ target }) => {
      if (!root.contains(target as Node) && target !== button) this.close()
    })
  }

  get isOpen(): boolean {
    return this.button.getAttribute('aria-expanded') === 'true'
  }

  toggle(): void {
    // The focus does not vanish with what has it.
    if (this.isOpen && this.root.contains(document.activeElement)) this.button.focus()
    const isOpen = !this.isOpen
    this.button.setAttribute('aria-expanded', String(isOpen))
    this.show(isOpen)
  }

  /** False when it was not open. */
  close(): boolean {
    const { isOpen } = this
    if (isOpen) this.toggle()
    return isOpen
  }
}
