// The view "events": the trace as it was recorded, row by row, with the events of one allocation marked.

import { deviceName, explain } from '../../ui/devices'
import { fill, h } from '../../ui/dom'
import { decoded } from '../../ui/format'
import { download, fileName, inPieces } from '../../ui/download'
import { VirtualList } from '../../ui/virtual-list'
import { formatCount } from '../../layout/format'
import { Memo } from '../memo'
import { allocationItems, openMenu } from '../shared/context-menu'
import { fitting, templateOf, widthOf } from '../shared/column-fit'
import type { View, ViewContext, ViewParts } from '../view'
import {
  allocationOf,
  type Boundaries,
  boundariesOf,
  type EventIndex,
  indexEvents,
  listed,
  ListedEvents,
  namesBetween,
} from './event-index'
import { CSV_HEAD, csvRow, describeListed, type EventColumn, eventColumns, fillEventRow, headRow } from './event-rows'
import { endsOf, recordOf } from './event-record'
import { EventsBar, EventsTools, readPlace } from './events-tools'

const ROW_HEIGHT = 24

export class EventsView implements View {
  readonly element: HTMLElement
  readonly tools: HTMLElement
  private readonly bar = new EventsBar()
  private readonly list: VirtualList
  private readonly toolbar: EventsTools
  private readonly note = h('p.table-words', { role: 'status' })
  private readonly empty = h('p.view-empty', { hidden: true })
  private readonly index = new Memo<EventIndex>()
  private readonly listing = new Memo<ListedEvents>()
  private readonly boundaries = new Memo<Boundaries>()
  private context: ViewContext | null = null
  private columns: EventColumn[] = []
  private drawn: readonly unknown[] = []
  private lines: ListedEvents | null = null
  /** What the list last scrolled to: it scrolls when one of these changes elsewhere. */
  private followed: { data: unknown; at: number | null; select: number | null } | null = null

  constructor(private readonly parts: ViewParts) {
    const { store } = parts
    this.list = new VirtualList({
      name: 'events',
      label: 'Events',
      role: 'grid',
      rowHeight: ROW_HEIGHT,
      fill: (row, index) => this.fillRow(row, index),
      onClick: (index) => this.select(index),
      onMenu: (index, x, y) => {
        const id = allocationOf(this.events, this.eventAt(index))
        if (id >= 0) openMenu(allocationItems(store, this.context!.data, id), x, y)
      },
      onEnter: () => this.setMoment(),
      onSpace: (index) => this.select(index),
    })
    this.list.element.classList.add('events')
    this.toolbar = new EventsTools({
      goToPlace: (text) => this.goToPlace(text),
      goToPeak: () => this.goTo(this.context!.info.peak_event),
      goToOom: (direction) => this.toOom(direction),
      listMatchesOnly: (isOn) => store.setOption('events.matches', isOn ? 'only' : null),
      save: () => void this.save(),
    })
    this.tools = this.toolbar.element
    this.element = h(
      'section.column.events-view',
      { 'aria-label': 'Events' },
      this.bar.actions,
      this.note,
      this.bar.ends,
      this.list.element,
      this.empty,
    )
  }

  prepare({ info, data }: ViewContext): void {
    if (info.events === 0) return
    this.index.get([data], () => indexEvents(info, data))
    this.boundaries.get([data], () => boundariesOf(info, data))
  }

  show(context: ViewContext): void {
    const { state, info, data, stacks, matches, position, colouring } = context
    this.context = context
    const isEmpty = info.events === 0
    this.empty.hidden = !isEmpty
    for (const part of [this.list.element, this.bar.actions, this.note, this.tools]) part.hidden = isEmpty
    if (isEmpty) {
      this.empty.textContent = `${explain(info) ?? 'No events were recorded for this device.'}${info.allocations > 0 ? ' The table lists its allocations.' : ''}`
      return
    }
    const index = this.events
    const before = this.lines
    const mask = this.mask
    const lines = this.listing.get(
      [index, state.options['events.hide'], mask],
      () => new ListedEvents(listed(index, this.hidden, mask), data.n),
    )
    const hasTimes = info.time0 !== null
    const all = eventColumns(info, stacks, hasTimes)
    const columns = fitting(all, this.element.clientWidth - 16)
    const key = [
      data,
      data.timeUs,
      lines,
      state.select,
      state.oom,
      position,
      matches,
      colouring,
      columns.length,
      this.element.clientWidth,
      this.element.clientHeight,
      state.noise,
    ]
    if (!key.every((part, i) => part === this.drawn[i])) {
      this.drawn = key
      this.lines = lines
      // The cursor stays on its event, or on the next listed one, when others are hidden.
      const event =
        this.list.cursor < 0 || this.followed?.data !== data
          ? null
          : before
            ? before.eventAt(this.list.cursor)
            : this.list.cursor
      this.columns = columns
      this.showWords(context, index, lines)
      this.showHead()
      this.list.setRows(
        lines.count,
        event === null ? -1 : this.lineOf(event ?? data.n),
        this.followed?.data === data ? -1 : this.lineOf(Math.max(0, position - 1)),
      )
    }
    this.follow(context)
  }

  /** The next `show` scrolls to the moment, as the first one does. */
  forget(): void {
    this.followed = null
    this.drawn = []
    this.lines = null
  }

  settled(): Promise<void> {
    return this.list.settled()
  }

  key(event: KeyboardEvent): boolean {
    if (!this.context || this.context.info.events === 0) return false
    if (this.list.key(event)) return true
    switch (event.key.toLowerCase()) {
      case 'g':
        return (this.toolbar.focusPlace(), true)
      case 'p':
        return (this.goTo(this.context.info.peak_event), true)
      case 'o':
        return (this.toOom(event.shiftKey ? -1 : 1), true)
      case 'x':
        return (this.toOtherEnd(), true)
      default:
        return false
    }
  }

  debug(): unknown {
    return {
      listed: this.lines?.count ?? this.context?.info.events,
      visible: this.list.visible,
      cursor: this.list.cursor,
      columns: this.columns.map(({ name }) => name),
    }
  }

  // What is listed

  private get events(): EventIndex {
    const { info, data } = this.context!
    return this.index.get([data], () => indexEvents(info, data))
  }

  private get mask(): Uint8Array | null {
    const { state, matches } = this.context!
    return matches && state.options['events.matches'] === 'only' ? matches.mask : null
  }

  private get hidden(): Set<string> {
    return new Set((this.context!.state.options['events.hide'] ?? '').split(',').filter(Boolean).map(decoded))
  }

  private eventAt(line: number): number {
    return this.lines ? this.lines.eventAt(line) : line
  }

  private lineOf(event: number): number {
    return this.lines ? this.lines.lineOf(event) : event
  }

  // Head and rows

  private showWords({ state, info, data, matches }: ViewContext, index: EventIndex, lines: ListedEvents): void {
    const { store } = this.parts
    this.list.element.setAttribute('aria-label', `Events of ${deviceName(this.parts.client.manifest, info)}`)
    this.bar.showActions(index, this.hidden, (name, isListed) => {
      const hidden = this.hidden
      if (isListed) hidden.delete(name)
      else hidden.add(name)
      store.setOption('events.hide', hidden.size ? [...hidden].map(encodeURIComponent).join(',') : null)
    })
    const { select } = state
    this.bar.showEnds(
      select !== null && select < data.N ? select : null,
      select !== null && select < data.N ? endsOf(data, index, select) : [],
      (event) => this.goTo(event),
    )
    this.toolbar.render(matches && this.mask !== null, info.stats.oom_events.length > 0)
    this.note.textContent = describeListed(info, lines.rows ? lines.count : null, matches)
  }

  private showHead(): void {
    fill(this.list.head, headRow(this.columns))
    this.list.setColumns(templateOf(this.columns), widthOf(this.columns))
    this.list.element.setAttribute('aria-colcount', String(this.columns.length))
  }

  private fillRow(element: HTMLElement, line: number): void {
    const context = this.context!
    const { info, data } = context
    const event = this.eventAt(line)
    const boundaries = this.boundaries.get([data], () => boundariesOf(info, data))
    fillEventRow(element, {
      context,
      index: this.events,
      event,
      columns: this.columns,
      begun: namesBetween(boundaries, line === 0 ? -1 : this.eventAt(line - 1), event),
    })
  }

  // Moving

  private follow({ state, data, position }: ViewContext): void {
    const { followed } = this
    this.followed = { data, at: state.at, select: state.select }
    const isFresh = followed?.data !== data
    const isSelected = state.select !== null && state.select < data.N
    // A link to an allocation opens on it, unless it names a moment too.
    if (isFresh ? state.at !== null || !isSelected : state.at !== followed.at)
      this.list.moveTo(this.lineOf(Math.max(0, position - 1)), 'middle')
    else if (isSelected && state.select !== followed?.select) {
      const ends = endsOf(data, this.events, state.select!)
      const [first, past] = this.list.visible
      const isSeen = ends.some(({ event }) => this.lineOf(event) >= first && this.lineOf(event) < past)
      if (!isSeen || isFresh)
        this.list.moveTo(this.lineOf(ends.length ? ends[0].event : Math.max(0, position - 1)), 'middle')
    }
  }

  private goTo(event: number): void {
    const line = this.lineOf(Math.max(0, event))
    this.list.moveTo(line, 'middle')
    this.list.element.focus({ preventScroll: true })
    if (line < 0) return
    const shown = this.eventAt(line)
    this.parts.announce(
      shown === event || event < 0
        ? `Event ${formatCount(shown)}`
        : `Event ${formatCount(event)} is not listed; this is event ${formatCount(shown)}`,
    )
  }

  private goToPlace(text: string): void {
    const place = readPlace(text, this.context!.data)
    if (typeof place === 'number') return this.goTo(place)
    this.toolbar.refusePlace()
    this.parts.announce(`Not understood: enter ${place}`)
  }

  private toOom(direction: 1 | -1): void {
    const events = this.context!.info.stats.oom_events
    if (events.length === 0) return
    const here = this.list.cursor < 0 ? -1 : this.eventAt(this.list.cursor)
    const next =
      direction > 0
        ? (events.find((event) => event > here) ?? events[0])
        : ([...events].reverse().find((event) => event < here) ?? events[events.length - 1])
    this.goTo(next)
  }

  /** From one event of an allocation to its next, and from the last to the first. */
  private toOtherEnd(): void {
    const { data } = this.context!
    const event = this.eventAt(this.list.cursor)
    const id = this.list.cursor < 0 ? -1 : allocationOf(this.events, event)
    if (id < 0) return
    const ends = endsOf(data, this.events, id)
    const next = ends.find((end) => end.event > event) ?? ends[0]
    this.select(this.list.cursor)
    this.goTo(next.event)
  }

  /** Opens the details of a row's allocation or failure. */
  private select(line: number): void {
    const { store } = this.parts
    const event = this.eventAt(line)
    const id = allocationOf(this.events, event)
    if (id >= 0) store.set({ select: id })
    else if (this.context!.info.ooms.some((oom) => oom.event === event)) store.set({ oom: event, at: event })
    else store.close()
  }

  private setMoment(): void {
    this.parts.store.set({ at: this.eventAt(this.list.cursor) })
  }

  private async save(): Promise<void> {
    const { info, data, stacks } = this.context!
    const { client, announce, saved } = this.parts
    const index = this.events
    const lines = this.lines!
    announce('Writing the file')
    await client.times(info.index)
    const pieces = await inPieces(lines.count, (line) =>
      csvRow(info, stacks, recordOf(info, data, index, lines.eventAt(line))),
    )
    saved(
      download(
        `${fileName(client.manifest.title, deviceName(client.manifest, info), 'events')}.csv`,
        'text/csv;charset=utf-8',
        [CSV_HEAD, ...pieces],
      ),
    )
  }
}
