// Rows of named spans above the plot: steps, annotated regions, a profiler's trace, compile contexts, user metadata. A click zooms to a span;
// "," and "." step through those of a row.

import { stepRanges } from '../../steps/steps'
import type { DeviceData, DeviceInfo } from '../../data/model'
import { activityRows, readActivities } from '../../steps/activities'
import { type Track, tracksOf } from '../../steps/spans'
import { h } from '../../ui/dom'
import type { Store } from '../../ui/state'
import type { DataClient } from '../../worker/data-client'
import type { Navigator } from './navigator'
import type { Scene } from '../shared/scene'
import type { Frame } from './frame'
import { Tooltip } from '../shared/tooltip'
import { drawRow, edgesOf, piecesOf } from './track-drawing'
import type { Piece } from './span-text'
import { describeBroken, describePiece, nameOf } from './span-text'

export const ROW = 15
/** Rows that are shown by default, and where the window is low. */
const ROWS = 6
/** Pixels of the button alone. */
const CLOSED = 18
const ROWS_WHEN_LOW = 3
const LOW_PIXELS = 420
/** Rows never take more of the timeline's height. */
const MOST = 0.5
/** Room beside a span that was zoomed to, as a share of it. */
const MARGIN = 0.04

interface Shown {
  frame: Frame
  rows: { track: Track; pieces: Piece[] }[]
}

export class Tracks {
  readonly element: HTMLElement
  /** Above everything: to be placed beside the element, not inside it. */
  readonly tooltip = new Tooltip()
  readonly canvas = h('canvas', { tabindex: 0, role: 'application', 'aria-roledescription': 'rows of spans' })
  private readonly ctx = this.canvas.getContext('2d')!
  private readonly button = h('button.quiet.track-button', { onclick: () => this.toggle() })
  private readonly live = h('div.offscreen', { 'aria-live': 'polite' })
  /** Rows of a profiler's trace by device; empty until they are read. */
  private readonly activities = new Map<number, readonly Track[]>()
  private tracks: Track[] = []
  private tracksFor = ''
  /** The rows that fit, of those to be shown. */
  private rowCount = 0
  private shown: Shown | null = null
  private pointer: { x: number; y: number } | null = null

  /** onHover requests a frame. */
  constructor(
    private readonly client: DataClient,
    private readonly store: Store,
    private readonly navigator: Navigator,
    private readonly onHover: () => void,
  ) {
    this.element = h('div.tracks', { hidden: true }, this.canvas, this.button, this.live)
    this.canvas.addEventListener('pointermove', (event) => {
      this.pointer = { x: event.offsetX, y: event.offsetY }
      onHover()
    })
    this.canvas.addEventListener('pointerleave', () => {
      this.pointer = null
      onHover()
    })
    this.canvas.addEventListener('click', (event) => this.click(event.offsetX, event.offsetY))
    this.canvas.addEventListener('keydown', (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.key(event.key)) return
      event.preventDefault()
      event.stopPropagation()
    })
  }

  /** What its own rows take, in pixels. */
  get room(): number {
    return this.tracks.length === 0 ? 0 : this.rowCount * ROW || CLOSED
  }

  /**
   * Reserves room for the rows of a device, and no less than `least`. True when the room has changed, and with it the
   * height of the plot.
   */
  place(scene: Scene, height: number, least: number): boolean {
    const key = `${scene.info.index}/${scene.data !== null}`
    if (key !== this.tracksFor) {
      this.tracksFor = key
      this.tracks = tracksOf(scene.info, scene.data, this.activitiesOf(scene))
    }
    const rows = this.rowsFor(height)
    const all = this.tracks.length
    const { element, canvas, button } = this
    const isHidden = Math.max(this.room, least) === 0
    const changed = element.hidden !== isHidden || canvas.style.height !== `${rows * ROW}px`
    element.hidden = isHidden
    element.style.minHeight = `${Math.max(this.room, least)}px`
    button.hidden = all === 0
    canvas.hidden = rows === 0
    canvas.style.height = `${rows * ROW}px`
    // Set only when it changes: text that is set again is laid out again on every frame.
    const text = rows === 0 ? `${all} ▸` : rows < all ? `${rows} of ${all}` : '▾'
    if (button.textContent !== text) button.textContent = text
    const title =
      rows === 0
        ? 'Show steps and annotations'
        : rows < all && this.mode !== 'all'
          ? `Show all ${all} rows`
          : 'Hide steps and annotations'
    if (button.title !== title) {
      button.title = title
      button.setAttribute('aria-label', title)
    }
    return changed
  }

  draw(frame: Frame, dark: boolean): void {
    const { scene, scale, window, plot, inks } = frame
    const { canvas, ctx } = this
    const rows = this.element.hidden || canvas.hidden ? [] : this.tracks.slice(0, this.rowCount)
    this.shown = {
      frame,
      rows: rows.map((track) => ({ track, pieces: piecesOf(track, scale, window, plot.width) })),
    }
    if (rows.length === 0) return this.tooltip.hide()
    const ratio = devicePixelRatio || 1
    const width = canvas.clientWidth
    const size = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(rows.length * ROW * ratio))]
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
    ctx.clearRect(0, 0, width, rows.length * ROW)
    const chosen = this.chosen
    const hit = this.hit()
    let before = ''
    this.shown.rows.forEach(({ track, pieces }, row) => {
      // The button lies in the margin of the last row.
      const label =
        track.kind === before || (row === rows.length - 1 && rows.length < this.tracks.length) ? '' : LABELS[track.kind]
      before = track.kind
      const mark = (piece: Piece): boolean =>
        chosen?.row === row && piece.from <= chosen.index && chosen.index <= piece.to
      drawRow(ctx, {
        track,
        pieces,
        plot,
        y: row * ROW,
        height: ROW - 1,
        label,
        inks,
        dark,
        mark,
        hover: hit?.row === row ? hit.piece : null,
      })
    })
    canvas.style.cursor = hit ? 'pointer' : ''
    const name = `${rows.length} rows of spans: ${[...new Set(rows.map((track) => track.title))].join(', ')}. ${describeBroken(scene)} Comma and full stop step through a row, arrow up and down change the row.`
    if (canvas.getAttribute('aria-label') !== name) canvas.setAttribute('aria-label', name)
    if (hit && this.pointer) {
      this.tooltip.show(
        describePiece(scene, hit.track, hit.piece),
        this.pointer.x,
        canvas.offsetTop + this.pointer.y,
        null,
      )
    } else this.tooltip.hide()
  }

  /** To the next span in the row of the selected one (the first row without one), or to the previous. False without rows. */
  step(by: number): boolean {
    const rows = this.shown?.rows
    if (!rows?.length) return false
    const { row, index } = this.chosen ?? { row: 0, index: by > 0 ? -1 : rows[0].track.first.length }
    const { track } = rows[Math.min(row, rows.length - 1)]
    const next = Math.max(0, Math.min(track.first.length - 1, index + by))
    if (track.first.length) this.choose(Math.min(row, rows.length - 1), next, next)
    return true
  }

  /** What the rows show, for the tests. */
  debug(): unknown {
    const rows = this.shown?.rows ?? []
    return {
      rows: this.tracks.length,
      shown: rows.map(({ track, pieces }) => ({
        kind: track.kind,
        spans: Array.from(track.first, (first, i) => ({
          name: nameOf(track, i),
          first,
          last: track.last[i],
          ragged: track.ragged?.[i] ?? 0,
        })),
        pieces,
      })),
      steps: this.shown && stepRanges(this.shown.frame.scene.info)?.names.length,
    }
  }

  /** Rows without spans until the trace is read, which is requested with the device's columns. */
  private activitiesOf({ info, data }: Scene): readonly Track[] {
    const rows = this.activities.get(info.index)
    if (rows?.length) return rows
    if (info.activities && data && !rows) {
      this.activities.set(info.index, [])
      this.readActivities(info, data).catch(() => {}) // the rows stay empty; a file that lacks the part says so itself
    }
    return activityRows(info)
  }

  private async readActivities(info: DeviceInfo, data: DeviceData): Promise<void> {
    const [columns] = await Promise.all([
      this.client.section(`${info.section}.activities`),
      this.client.times(info.index),
    ])
    if (!data.clockUs) return
    this.activities.set(info.index, readActivities(info, columns, data.clockUs))
    this.tracksFor = ''
    this.onHover()
  }

  private get mode(): string {
    return this.store.state.options['timeline.tracks'] ?? 'few'
  }

  private rowsFor(height: number): number {
    const all = this.tracks.length
    const few = height < LOW_PIXELS ? ROWS_WHEN_LOW : ROWS
    const rowsToShow = this.mode === 'none' ? 0 : this.mode === 'all' ? all : Math.min(few, all)
    this.rowCount = Math.min(rowsToShow, Math.max(1, Math.floor((height * MOST) / ROW)))
    return this.rowCount
  }

  private toggle(): void {
    const more = this.mode === 'few' && this.rowCount < this.tracks.length
    this.store.setOption('timeline.tracks', this.mode === 'none' ? null : more ? 'all' : 'none')
  }

  /** The span that the link names, "device.row.index", where it is one of this device. */
  private get chosen(): { row: number; index: number } | null {
    const found = /^(\d{1,6})\.(\d{1,6})\.(\d{1,9})$/.exec(this.store.state.options['timeline.span'] ?? '')
    return found && Number(found[1]) === this.store.state.device
      ? { row: Number(found[2]), index: Number(found[3]) }
      : null
  }

  private hit(): { row: number; track: Track; piece: Piece } | null {
    const { pointer, shown } = this
    if (!pointer || !shown) return null
    const row = Math.floor(pointer.y / ROW)
    const x = pointer.x - shown.frame.plot.left
    const found = shown.rows[row]?.pieces
      .filter((piece) => piece.x0 - 2 <= x && x <= piece.x1 + 2)
      .sort((a, b) => outside(a, x) - outside(b, x))[0]
    return found ? { row, track: shown.rows[row].track, piece: found } : null
  }

  private click(x: number, y: number): void {
    this.pointer = { x, y }
    const hit = this.hit()
    if (hit) this.choose(hit.row, hit.piece.from, hit.piece.to)
    else this.store.setOption('timeline.span', null)
  }

  /** Zooms to spans of a row; one alone is marked, and named to screen readers. */
  private choose(row: number, from: number, to: number): void {
    const { frame, rows } = this.shown!
    const { scale } = frame
    const { track } = rows[row]
    this.store.setOption('timeline.span', from === to ? `${this.store.state.device}.${row}.${from}` : null)
    const [x0, x1] = [edgesOf(track, from, scale)[0], edgesOf(track, to, scale)[1]]
    const margin = Math.max((x1 - x0) * MARGIN, scale.axis === 'event' ? 0.5 : 1)
    this.navigator.showX(x0 - margin, x1 + margin)
    if (from === to)
      this.live.textContent = describePiece(frame.scene, track, { x0: 0, x1: 0, from, to })
        .map(({ text }) => text)
        .join(', ')
  }

  private key(key: string): boolean {
    const rows = this.shown?.rows ?? []
    if (key === 'Escape' && this.chosen) return (this.store.setOption('timeline.span', null), true)
    if (key !== 'ArrowUp' && key !== 'ArrowDown') return false
    const row = Math.max(0, Math.min(rows.length - 1, (this.chosen?.row ?? 0) + (key === 'ArrowUp' ? -1 : 1)))
    if (!rows[row]?.track.first.length) return true
    // The span of that row at the place of the selected one.
    const here = this.chosen
      ? (rows[Math.min(this.chosen.row, rows.length - 1)].track.first[this.chosen.index] ?? 0)
      : 0
    const { first } = rows[row].track
    let index = first.findIndex((event) => event >= here)
    if (index < 0) index = first.length - 1
    this.choose(row, index, index)
    return true
  }
}

const LABELS: Record<Track['kind'], string> = {
  step: 'steps',
  annotation: 'spans',
  cost: 'cost',
  operator: 'ops',
  kernel: 'kernels',
  context: 'compile',
  metadata: 'meta',
}

function outside(piece: Piece, x: number): number {
  return Math.max(0, piece.x0 - x, x - piece.x1)
}
