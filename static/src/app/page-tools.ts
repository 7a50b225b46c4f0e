// What the toolbar offers on every view: bookmarks, and the view as a picture.

import type { DataClient } from '../worker/data-client'
import { describeWindow } from '../views/shared/describe'
import type { TimelineView } from '../views/timeline/timeline-view'
import { Bookmarks } from './bookmarks'
import { deviceName } from '../ui/devices'
import { h } from '../ui/dom'
import { fileName } from '../ui/download'
import { captioned, composite, joined, savePicture } from './save-picture'
import type { Split } from './split'
import type { Stage } from './stage'
import type { State, Store } from '../ui/state'
import type { JobHost } from './job-host'

interface Parts {
  client: DataClient
  store: Store
  /** The state of a report that was just opened. */
  start: State
  timeline: TimelineView
  stage: Stage
  job: JobHost
  split(): Split
  saved(text: string): void
  /** Says what went wrong. */
  tell(text: string): void
}

export class PageTools {
  readonly element: HTMLElement
  readonly bookmarks: Bookmarks
  private readonly parts: Parts
  private readonly save: HTMLButtonElement

  constructor(parts: Parts) {
    this.parts = parts
    this.bookmarks = new Bookmarks(parts.store, parts.start, parts.client.devices.length, () => this.nameOfView())
    this.save = h(
      'button',
      { type: 'button', title: 'Save the view as a picture (PNG)', onclick: () => void this.savePicture() },
      'PNG',
    )
    this.element = h('div', { class: 'tools page-tools' }, this.bookmarks.element, this.save)
  }

  render(state: State): void {
    this.save.hidden = state.view === 'summary'
  }

  /** The view as it is on screen, of both panes where there are two, with a caption each; null where it has no picture. */
  async picture(): Promise<HTMLCanvasElement | null> {
    const { client, store, timeline, stage, split } = this.parts
    const { title } = client.manifest
    const { pane } = split()
    if (!pane) return this.captioned(timeline, stage, { title, detail: this.nameOfView() })
    const { state } = store
    const { view } = state
    const pictures = await Promise.all([
      this.captioned(timeline, stage, { title, detail: `${split().titleOfFirst(state)}, ${view}` }),
      this.captioned(pane.timeline, pane.stage, { title, detail: `${pane.words}, ${view}` }),
    ])
    const available = pictures.filter((picture) => picture !== null)
    return available.length ? joined(available, pane.second.stacked) : null
  }

  private async captioned(
    timeline: TimelineView,
    stage: Stage,
    caption: { title: string; detail: string },
  ): Promise<HTMLCanvasElement | null> {
    const { store, job } = this.parts
    const { view } = store.state
    const element = view === 'timeline' ? timeline.element : view === 'job' ? job.element : stage.element
    let picture: HTMLCanvasElement | null
    if (view === 'timeline') {
      timeline.drawNow()
      picture = composite(element, '.line-label:not([hidden]), .ruler')
    } else picture = await (view === 'job' ? job : stage).picture()
    return picture && captioned(picture, caption, element)
  }

  private async savePicture(): Promise<void> {
    const { client, store, saved, tell } = this.parts
    try {
      const picture = await this.picture()
      if (picture) saved(await savePicture(picture, `${fileName(client.manifest.title, store.state.view)}.png`))
      else tell('This view has no picture to save.')
    } catch (error) {
      tell(`The picture cannot be saved: ${error instanceof Error ? error.message : String(error)}`)
    }
  }

  /** "cuda:0, timeline, events 120 to 480, at most 1.2 GiB allocated" */
  private nameOfView(): string {
    const { client, store, timeline } = this.parts
    const { view, x, device, query } = store.state
    const scene = timeline.currentScene
    const info = client.devices[device]
    const parts = [info && view !== 'job' && deviceName(client.manifest, info), view]
    if (view === 'timeline' && scene) parts.push(describeWindow(scene, x))
    if (query) parts.push(`matching ${query}`)
    return parts.filter(Boolean).join(', ')
  }
}
