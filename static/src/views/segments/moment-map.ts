// The map of segments at one moment: a scrolling picture, the pointer and the keys on it.

import type { AllocatorState } from '../../allocator/state'
import { fill, h } from '../../ui/dom'
import { formatBytes } from '../../layout/format'
import { onLongPress } from '../shared/long-press'
import { Tooltip } from '../shared/tooltip'
import type { ViewContext, ViewParts } from '../view'
import type { Groups } from '../shared/groups'
import { css } from '../shared/inks'
import { layOutMap, LINE, lineAt, type MapLayout, pieceAt, type Sort } from './map-layout'
import { blockFrom, colourOf, MapPainter, type MapScene } from './paint'
import { describeBlock, groupTotals, headlineOf } from './state-text'

/** Room for the sizes of segments beside the lines; none on phones. */
const GUTTER = 84
const MARGIN = 10

export interface MapChoice {
  sort: Sort
  zoom: number
  /** Address of the only segment to show; null: all. */
  focus: number | null
}

export class MomentMap {
  readonly element: HTMLElement
  onFocus: (address: number | null) => void = () => {}
  private readonly parts: ViewParts
  private readonly canvas = h('canvas', { 'aria-hidden': 'true' })
  private readonly headers = h('div', { class: 'map-headers' })
  private readonly scroll: HTMLElement
  private readonly tooltip = new Tooltip()
  private readonly painter = new MapPainter()
  private scene: (MapScene & { groups: Groups; context: ViewContext }) | null = null
  private wish = ''
  private hover: { piece: number; block: number } | null = null
  /** Start of the block that the keyboard is on, also where that is free. */
  private cursor: number | null = null
  private frame = 0

  constructor(parts: ViewParts) {
    this.parts = parts
    this.scroll = h(
      'div',
      {
        class: 'map-scroll',
        tabindex: 0,
        role: 'application',
        'aria-roledescription': 'memory map',
        'aria-label': 'Segments and their blocks',
      },
      h('div', { class: 'map-pin' }, this.canvas),
      this.headers,
    )
    this.element = h('div', { class: 'moment-map' }, this.scroll, this.tooltip.element)
    this.scroll.addEventListener('scroll', () => {
      this.leave()
      this.draw()
    })
    this.scroll.addEventListener('pointermove', (event) => event.pointerType !== 'touch' && this.point(event))
    // What a long press shows stays when the finger leaves.
    this.scroll.addEventListener('pointerleave', (event) => event.pointerType !== 'touch' && this.leave())
    this.scroll.addEventListener('pointerdown', (event) => event.pointerType === 'touch' && this.leave())
    onLongPress(this.scroll, (event) => this.point(event))
    this.scroll.addEventListener('click', (event) => this.click(event))
    this.scroll.addEventListener('dblclick', (event) => {
      const hit = this.hit(event)
      if (hit) this.toggleFocus(this.scene!.layout.pieces[hit.piece].segment)
    })
  }

  show(context: ViewContext, scene: Omit<MapScene, 'layout'>, groups: Groups, choice: MapChoice): void {
    const { clientWidth, clientHeight } = this.scroll
    if (clientWidth === 0) return
    const { state } = scene
    const focus = choice.focus === null ? -1 : segmentAt(state, choice.focus)
    const width = clientWidth - this.gutter - 2 * MARGIN
    const layout = layOutMap(state, groups, {
      width,
      height: clientHeight,
      sort: choice.sort,
      zoom: choice.zoom,
      focus,
      coarsest: context.extent,
    })
    this.scene = { ...scene, layout, groups, context }
    this.hover = null
    this.tooltip.hide()
    // Where another place is asked for, the view goes there; a step in time leaves it where it is.
    const wish = JSON.stringify([choice, width])
    this.showHeaders()
    this.headers.style.height = `${layout.height}px`
    if (wish !== this.wish && choice.focus !== null) this.scroll.scrollTop = 0
    this.wish = wish
    this.draw()
  }

  get layout(): MapLayout | null {
    return this.scene?.layout ?? null
  }

  /** For tests: the middle of an allocation's first pixel row in CSS pixels of the window; null where it is not shown. */
  placeOf(id: number): { x: number; y: number } | null {
    const found = this.find(id)
    if (!found) return null
    const box = this.scroll.getBoundingClientRect()
    return {
      x: box.left + this.left + found.x + found.width / 2,
      y: box.top + found.y + LINE / 2 - this.scroll.scrollTop,
    }
  }

  /** Arrows up and down, with shift from segment to segment; Z zooms into the segment. */
  key(event: KeyboardEvent): boolean {
    if (!this.scene) return false
    switch (event.key) {
      case 'ArrowDown':
        return (this.move(1, event.shiftKey), true)
      case 'ArrowUp':
        return (this.move(-1, event.shiftKey), true)
      case 'z':
      case 'Z':
      case 'Enter':
        return this.focusHere(event)
      default:
        return false
    }
  }

  picture(): HTMLCanvasElement {
    return this.canvas
  }

  private get gutter(): number {
    return this.scroll.clientWidth < 560 ? 0 : GUTTER
  }

  private get left(): number {
    return this.gutter + MARGIN
  }

  private showHeaders(): void {
    const { layout, groups } = this.scene!
    fill(
      this.headers,
      ...layout.groups.map((group) => {
        const header = h(
          'div',
          { class: 'map-header' },
          h('strong', {}, groups.names[group.group]),
          h('span', { class: 'soft' }, groupTotals(group)),
        )
        header.style.top = `${group.y}px`
        return header
      }),
    )
  }

  private requestDraw(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.draw())
  }

  private draw(): void {
    cancelAnimationFrame(this.frame)
    this.frame = 0
    const { scene, canvas, scroll } = this
    if (!scene) return
    const ratio = devicePixelRatio || 1
    const width = scroll.clientWidth
    const height = scroll.clientHeight
    canvas.width = Math.round(width * ratio)
    canvas.height = Math.round(height * ratio)
    canvas.style.width = `${width}px`
    canvas.style.height = `${height}px`
    const ctx = canvas.getContext('2d')!
    const top = scroll.scrollTop
    ctx.setTransform(ratio, 0, 0, ratio, this.left * ratio, -top * ratio)
    const first = Math.max(0, lineAt(scene.layout, top))
    const last = Math.min(scene.layout.lineY.length - 1, lineAt(scene.layout, top + height))
    this.painter.paint(ctx, scene, first, last, ratio)
    if (this.gutter) this.drawGutter(ctx, first, last)
    this.drawMarks(ctx, first, last)
  }

  /** Beside each line the size of the segment that begins there, or how many do. */
  private drawGutter(ctx: CanvasRenderingContext2D, first: number, last: number): void {
    const { layout, state, inks } = this.scene!
    ctx.fillStyle = css(inks.soft)
    ctx.textAlign = 'right'
    for (let line = first; line <= last; line++) {
      const begun: number[] = []
      for (let i = layout.lineFirst[line]; i < layout.lineFirst[line + 1]; i++) {
        const { segment, from } = layout.pieces[i]
        if (from === state.start[segment]) begun.push(state.end[segment] - state.start[segment])
      }
      if (begun.length === 0) continue
      const same = begun.every((size) => size === begun[0])
      const text =
        begun.length === 1
          ? formatBytes(begun[0])
          : same
            ? `${begun.length} × ${formatBytes(begun[0])}`
            : `${begun.length} segments`
      ctx.fillText(text, -8, layout.lineY[line] + LINE / 2)
    }
    ctx.textAlign = 'left'
  }

  /** What the event changed, the selection, and what the pointer is on. */
  private drawMarks(ctx: CanvasRenderingContext2D, first: number, last: number): void {
    const { layout, state, replay, inks, context } = this.scene!
    const { select } = context.state
    const outline = (from: number, to: number, colour: string, width: number, dash: number[]): void => {
      ctx.strokeStyle = colour
      ctx.lineWidth = width
      ctx.setLineDash(dash)
      for (let line = first; line <= last; line++) {
        for (let i = layout.lineFirst[line]; i < layout.lineFirst[line + 1]; i++) {
          const piece = layout.pieces[i]
          if (piece.to <= from || piece.from >= to) continue
          const perPixel = (piece.to - piece.from) / piece.width
          const x0 = piece.x + Math.max(0, (from - piece.from) / perPixel)
          const x1 = Math.max(x0 + 3, piece.x + Math.min(piece.width, (to - piece.from) / perPixel))
          ctx.strokeRect(x0, layout.lineY[line] + 0.5 - width / 2, x1 - x0, LINE - 1 + width)
        }
      }
      ctx.setLineDash([])
    }
    const ofId = (id: number, colour: string, width: number, dash: number[]): void =>
      outline(replay.address[id], replay.address[id] + replay.block[id], colour, width, dash)
    if (state.ended >= 0) ofId(state.ended, css(inks.oom), 2, [4, 3])
    if (state.requested >= 0) ofId(state.requested, css(inks.peak), 2, [2, 2])
    if (state.born >= 0) ofId(state.born, css(inks.oom), 2.5, [])
    if (select !== null && this.isLive(select)) ofId(select, css(inks.accent), 2.5, [])
    if (this.cursor !== null && document.activeElement === this.scroll) {
      const block = this.blockOf(this.cursor)
      if (block >= 0) outline(state.blockStart[block], state.blockEnd[block], css(inks.accent), 1.5, [5, 2])
    }
    if (this.hover) outline(state.blockStart[this.hover.block], state.blockEnd[this.hover.block], css(inks.ink), 1, [])
  }

  private isLive(id: number): boolean {
    const { start, end, N } = this.scene!.replay.data
    const { position } = this.scene!.state
    return id < N && start[id] <= position && end[id] > position
  }

  private hit(event: MouseEvent): { piece: number; block: number } | null {
    const { scene, scroll } = this
    if (!scene) return null
    const box = scroll.getBoundingClientRect()
    const x = event.clientX - box.left - this.left
    const index = pieceAt(scene.layout, x, event.clientY - box.top + scroll.scrollTop)
    if (index < 0) return null
    const piece = scene.layout.pieces[index]
    const perPixel = (piece.to - piece.from) / piece.width
    const block = widest(scene.state, piece.segment, piece.from + (x - piece.x) * perPixel, perPixel)
    return { piece: index, block }
  }

  private point(event: PointerEvent): void {
    const hit = this.hit(event)
    const { scene, element } = this
    if (!hit || !scene) return this.leave()
    if (this.hover?.block !== hit.block) {
      this.hover = hit
      this.requestDraw()
    }
    const box = element.getBoundingClientRect()
    const { segment } = scene.layout.pieces[hit.piece]
    const { state } = scene
    const lines = describeBlock(state, scene.replay, scene.context.stacks, scene.groups, segment, hit.block)
    this.tooltip.show(
      lines,
      event.clientX - box.left,
      event.clientY - box.top,
      state.blockId[hit.block] < 0 ? null : css(colourOf(scene, hit.block)),
    )
  }

  private leave(): void {
    this.tooltip.hide()
    if (this.hover) {
      this.hover = null
      this.requestDraw()
    }
  }

  private click(event: MouseEvent): void {
    const hit = this.hit(event)
    if (!hit || !this.scene) return
    this.cursor = this.scene.state.blockStart[hit.block]
    const id = this.scene.state.blockId[hit.block]
    this.parts.store.set({ select: id < 0 ? null : id })
    this.requestDraw()
  }

  /** To the next block by address or, by segments, to the first block of the next. */
  private move(by: number, bySegment: boolean): void {
    const { state, context, layout } = this.scene!
    if (state.blocks === 0) return
    const shown = layout.pieces[0]?.segment ?? 0
    const here = this.here()
    let block = here < 0 ? state.first[shown] : here + by
    if (here >= 0 && bySegment) {
      const segment = this.segmentOf(here)
      block = state.first[Math.min(state.segments - 1, Math.max(0, segment + by))]
    }
    block = Math.min(state.blocks - 1, Math.max(0, block))
    this.cursor = state.blockStart[block]
    const id = state.blockId[block]
    this.parts.store.set({ select: id < 0 ? null : id })
    if (id < 0) this.parts.announce(headlineOf(state, this.scene!.replay, context.stacks, block))
    this.reveal(block)
    this.requestDraw()
  }

  /** The block that the keyboard is on: the selection, or where it was last. */
  private here(): number {
    const { context, replay } = this.scene!
    const { select } = context.state
    if (select !== null && this.isLive(select)) return this.blockOf(replay.address[select])
    return this.cursor === null ? -1 : this.blockOf(this.cursor)
  }

  private blockOf(address: number): number {
    const { state } = this.scene!
    const segment = segmentAt(state, address)
    return segment < 0 ? -1 : Math.min(state.first[segment + 1] - 1, blockFrom(state, segment, address))
  }

  private segmentOf(block: number): number {
    const { first, segments } = this.scene!.state
    let segment = 0
    while (segment + 1 < segments && first[segment + 1] <= block) segment++
    return segment
  }

  private focusHere(event: KeyboardEvent): boolean {
    if (event.key === 'Enter' && document.activeElement !== this.scroll) return false
    const here = this.here()
    if (here < 0 && this.wish.includes('"focus":null')) return false
    this.toggleFocus(here < 0 ? 0 : this.segmentOf(here))
    return true
  }

  private toggleFocus(segment: number): void {
    const { layout, state } = this.scene!
    const shown = layout.pieceOf.reduce((count, piece) => count + Number(piece >= 0), 0)
    this.onFocus(shown === 1 && state.segments > 1 ? null : state.start[segment])
  }

  private reveal(block: number): void {
    const { scroll, scene } = this
    const segment = this.segmentOf(block)
    const { layout, state } = scene!
    let at = layout.pieceOf[segment]
    if (at < 0) return
    while (
      at + 1 < layout.pieces.length &&
      layout.pieces[at + 1].segment === segment &&
      layout.pieces[at].to <= state.blockStart[block]
    )
      at++
    const y = layout.lineY[layout.pieces[at].line]
    if (y < scroll.scrollTop) scroll.scrollTop = Math.max(0, y - 40)
    else if (y + LINE > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = y + LINE + 40 - scroll.clientHeight
  }

  private find(id: number): { x: number; y: number; width: number } | null {
    if (!this.scene || !this.isLive(id)) return null
    const { layout, replay } = this.scene
    const address = replay.address[id]
    for (const piece of layout.pieces) {
      if (address < piece.from || address >= piece.to) continue
      const perPixel = (piece.to - piece.from) / piece.width
      const x = (address - piece.from) / perPixel
      return {
        x: piece.x + x,
        y: layout.lineY[piece.line],
        width: Math.min(piece.width - x, replay.block[id] / perPixel),
      }
    }
    return null
  }
}

/** Of the blocks around an address that share its pixel, the widest. */
function widest(state: AllocatorState, segment: number, address: number, perPixel: number): number {
  const last = state.first[segment + 1] - 1
  let best = Math.min(last, blockFrom(state, segment, address))
  const size = (block: number): number => state.blockEnd[block] - state.blockStart[block]
  if (size(best) >= perPixel) return best
  const pixelEnd = address + perPixel / 2
  for (
    let block = Math.min(last, blockFrom(state, segment, address - perPixel / 2));
    block <= last && state.blockStart[block] < pixelEnd;
    block++
  ) {
    // What is allocated is worth more than the gap beside it.
    const better = Number(state.blockId[block] >= 0) - Number(state.blockId[best] >= 0) || size(block) - size(best)
    if (better > 0) best = block
  }
  return best
}

/** The segment that holds an address; -1 where none does. */
export function segmentAt({ start, end, segments }: AllocatorState, address: number): number {
  for (let segment = 0; segment < segments; segment++)
    if (start[segment] <= address && address < end[segment]) return segment
  return -1
}
