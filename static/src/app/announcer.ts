// What the page announces to screen readers.

import type { Manifest } from '../data/model'
import { deviceName } from '../ui/devices'
import { h } from '../ui/dom'
import type { State } from '../ui/state'
import { describeHeadline, describeWindow } from '../views/shared/describe'
import type { Scene } from '../views/shared/scene'

/** How long the window must rest before it is announced, in ms. */
const REST_MS = 700

export class Announcer {
  readonly element = h('div', { class: 'offscreen', 'aria-live': 'polite' })
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
