// What the page says around the views: to screen readers, above the views, and the first stop of the keyboard.

import type { DeviceInfo, Manifest } from '../data/model'
import { deviceName, explain } from '../ui/devices'
import { h } from '../ui/dom'
import type { State } from '../ui/state'
import { describeHeadline, describeWindow } from '../views/shared/describe'
import type { Scene } from '../views/shared/scene'

/** How long the window must rest before it is announced, in ms. */
const REST_MS = 700

export class Announcer {
  readonly element = h('div.offscreen', { 'aria-live': 'polite' })
  private timer = 0

  say(text: string): void {
    this.element.textContent = text
  }

  selection(scene: Scene | null, id: number): void {
    if (scene?.data && id < scene.data.N) this.say(`Selected: ${describeHeadline(scene, id)}`)
  }

  /** Announces what the window shows once it rests; `now` gives the scene and the state of that moment. */
  window(manifest: Manifest, now: () => { scene: Scene | null; state: State }): void {
    clearTimeout(this.timer)
    this.timer = window.setTimeout(() => {
      const { scene, state } = now()
      if (scene) this.say(`${deviceName(manifest, scene.info)}: ${describeWindow(scene, state.x)}`)
    }, REST_MS)
  }
}

export class Notice {
  readonly element = h('p.notice', { role: 'status', hidden: true })

  show(text: string): void {
    this.element.textContent = text
    this.element.hidden = false
  }

  /** `what` could not be done; the reason follows it. */
  showError(what: string, error: unknown): void {
    this.show(`${what}: ${error instanceof Error ? error.message : String(error)}`)
  }

  hide(): void {
    this.element.hidden = true
  }

  /** Says why there is no timeline, or what the viewer does without; leaves the line as it is where nothing is missing. */
  showLimits(info: DeviceInfo | undefined, viewer: { hasNoWorker: boolean; hasNoWebGl: boolean }): void {
    const reason = info && explain(info)
    if (reason) this.show(reason)
    else if (viewer.hasNoWorker)
      this.show(
        'This viewer does not allow workers. Everything works, but the page stops responding while it computes.',
      )
    else if (viewer.hasNoWebGl)
      this.show('This browser has no WebGL2. The picture is complete, but moves less smoothly.')
  }
}

/** The parts that take the keyboard, in the views that have them. */
const PICTURES = '.plot, .map-scroll, .time-plot, .flame-plot, .list, #summary'

export function skipLink(): HTMLElement {
  const link = h('a.skip', { href: '#app' }, 'Skip to the picture')
  link.addEventListener('click', (event) => {
    // The address is the state of the page: the link leaves it alone.
    event.preventDefault()
    event.stopPropagation()
    focusPicture()
  })
  return link
}

export function focusPicture(): void {
  const shown = [...document.querySelectorAll<HTMLElement>(PICTURES)].find((part) => part.offsetHeight > 0)
  if (!shown) return
  if (shown.tabIndex < 0) shown.tabIndex = -1
  shown.focus()
}
