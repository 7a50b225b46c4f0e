// The line above the views: what cannot be shown, or only in another way, and why.

import type { DeviceInfo } from '../data/model'
import { explain } from '../ui/devices'
import { h } from '../ui/dom'

export class Notice {
  readonly element = h('p', { class: 'notice', role: 'status', hidden: true })

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
