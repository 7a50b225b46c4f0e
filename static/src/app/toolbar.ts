// Tabs, the device, the axis and a few buttons. Shows the state and changes it; has none of its own.

import { deviceLabel, deviceSummary, hasData, viewsOf } from '../ui/devices'
import { button, menu } from '../ui/controls'
import { h } from '../ui/dom'
import { Popup } from '../ui/popup'
import { canSplit } from '../ui/second'
import type { State, Store, ViewName } from '../ui/state'
import { AxisSwitch } from '../views/shared/controls'
import type { DataClient } from '../worker/data-client'
import type { Actions } from './actions'
import { ColourSelect } from './colour-select'

const TITLES: Record<ViewName, string> = {
  job: 'Job',
  timeline: 'Timeline',
  segments: 'Segments',
  reserved: 'Reserved',
  flame: 'Flame',
  xray: 'X-ray',
  table: 'Table',
  events: 'Events',
  summary: 'Summary',
  diff: 'Difference',
}

export class Toolbar {
  readonly element: HTMLElement
  private readonly tabs = new Map<ViewName, HTMLButtonElement>()
  private readonly device: HTMLSelectElement
  private readonly axis: AxisSwitch
  private readonly box: HTMLButtonElement
  private readonly ruler: HTMLButtonElement
  private readonly oom: HTMLButtonElement
  private readonly split: HTMLButtonElement
  private readonly timelineTools: HTMLElement
  private readonly colour: ColourSelect
  private readonly viewRow: HTMLElement

  /** viewTools: the controls of the view on screen; pageTools: those of all views. */
  constructor(
    private readonly client: DataClient,
    store: Store,
    actions: Actions,
    viewTools: readonly HTMLElement[],
    pageTools: readonly HTMLElement[],
  ) {
    this.colour = new ColourSelect(store)
    const tabs = h('div.tabs', { role: 'tablist', 'aria-label': 'Views' })
    const views = viewsOf(client)
    for (const view of views) {
      const tab = h('button', { role: 'tab', id: `tab-${view}`, onclick: () => store.set({ view }) }, TITLES[view])
      tab.addEventListener('keydown', (event) => {
        if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return
        event.stopPropagation()
        const next = views[(views.indexOf(view) + (event.key === 'ArrowRight' ? 1 : views.length - 1)) % views.length]
        store.set({ view: next })
        this.tabs.get(next)?.focus()
      })
      this.tabs.set(view, tab)
      tabs.append(tab)
    }
    this.device = menu(
      'Device',
      client.devices.map((info) => [
        String(info.index),
        `${deviceLabel(client.manifest, info)} (${deviceSummary(info)})`,
      ]),
      (index) => store.set({ device: Number(index) }),
    )
    this.axis = new AxisSwitch(store)
    this.box = button('Box zoom', 'Zoom to a box by plain drag (B)', actions.toggleBox)
    this.ruler = button('Ruler', 'Measure bytes and time by plain drag (R)', actions.toggleRuler)
    this.oom = button('OOM', 'Go to the next out-of-memory error (O)', actions.goToOom)
    this.oom.classList.add('alarm')
    this.timelineTools = h(
      'div.row.wrap',
      this.axis.element,
      button('Peak', 'Go to the peak (P)', actions.goToPeak),
      this.oom,
      button('Fit', 'Show everything (0)', actions.fit),
      this.box,
      this.ruler,
    )
    // The controls of all views keep their place; below them are those of the view on screen.
    const help = button('?', 'Keys and mouse (?)', actions.toggleHelp)
    help.classList.add('help-button')
    help.setAttribute('aria-label', 'Keys and mouse')
    this.split = button('Split', 'Split: another device or another moment beside this one (L)', actions.toggleSecond)
    this.viewRow = h(
      'div.row.wrap.toolbar-row',
      this.device,
      this.split,
      this.colour.element,
      this.timelineTools,
      ...viewTools,
    )
    // In a small window all but the tabs and the search fold into a menu; otherwise its parts are in the rows themselves.
    const folded = h(
      'div.toolbar-menu.floating',
      { id: 'toolbar-menu' },
      h('div.row.page-end', ...pageTools.slice(-1), help),
      this.viewRow,
    )
    const menuButton = h('button.menu-button', { 'aria-controls': 'toolbar-menu' }, '☰ Menu')
    this.element = h('div.row.wrap.toolbar', tabs, ...pageTools.slice(0, -1), menuButton, folded)
    new Popup(this.element, menuButton, (isOpen) => this.element.classList.toggle('menu-open', isOpen))
  }

  render(
    state: State,
    { boxMode, rulerMode, isSplit }: { boxMode: boolean; rulerMode: boolean; isSplit: boolean },
  ): void {
    const shown = this.client.devices[state.device]
    this.oom.hidden = !shown?.stats.oom_events.length
    for (const [view, tab] of this.tabs) {
      const selected = view === state.view
      // On a narrow screen the tabs scroll.
      if (selected && tab.getAttribute('aria-selected') !== 'true')
        tab.scrollIntoView({ block: 'nearest', inline: 'nearest' })
      tab.setAttribute('aria-selected', String(selected))
      tab.tabIndex = selected ? 0 : -1
    }
    this.device.value = String(state.device)
    this.colour.render(state, shown)
    // One device with anything to see needs no choice: the headline names it.
    this.device.hidden =
      state.view === 'summary' ||
      state.view === 'job' ||
      !shown ||
      (this.client.devices.filter(hasData).length <= 1 && hasData(shown))
    this.timelineTools.hidden = state.view !== 'timeline'
    this.viewRow.hidden = state.view === 'summary'
    this.axis.render(state, shown)
    this.box.setAttribute('aria-pressed', String(boxMode))
    this.ruler.setAttribute('aria-pressed', String(rulerMode))
    this.split.setAttribute('aria-pressed', String(isSplit))
    this.split.hidden = !canSplit(state.view)
  }
}
