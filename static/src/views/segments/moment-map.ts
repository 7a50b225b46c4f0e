// The map of segments at one moment: a scrolling picture, the pointer and the keys on it.

import { fill, h } from '../../ui/dom'
import { CanvasView } from '../shared/canvas-view'
import type { Groups } from '../shared/groups'
import { css } from '../shared/inks'
import { onPointing } from '../shared/tooltip'
import type { ViewContext, ViewParts } from '../view'
import { GUTTER, layOutMap, LINE, lineAt, type MapLayout, type Sort } from './map-layout'
import {
  blockAt,
  drawGutter,
  drawMarks,
  type Hit,
  hitAt,
  isLive,
  lineTopOf,
  placeOf,
  segmentAt,
  segmentOf,
} from './map-marks'
import { colourOf, MapPainter, type MapScene } from './map-painting'
import { describeBlock, groupTotals, headlineOf } from './state-text'

/** Room for the sizes of segments beside the lines; none on phones. */
const MARGIN = 10
/** Distance from the edge of a block that is brought into view, in CSS pixels. */
const REVEAL_MARGIN = 40

export interface MapChoice {
  sort: Sort
  zoom: number
  /** Address of the only segment to show; null: all. */
  focus: number | null
}

interface Scene extends MapScene {
  groups: Groups
  context: ViewContext
}

export class MomentMap extends CanvasView {
  onFocus: (address: number | null) => void = () => {}
  private readonly headers = h('div.map-headers')
  private readonly painter = new MapPainter()
  private scene: Scene | null = null
  private choice: MapChoice | null = null
  private choiceKey = ''
  private hover: Hit | null = null
  /** Start of the keyboard's block, which may be free. */
  private cursor: number | null = null

  constructor(private readonly parts: ViewParts) {
    super(
      { class: 'map-scroll surface', 'aria-roledescription': 'memory map', 'aria-label': 'Segments and their blocks' },
      'moment-map',
    )
    this.plot.append(h('div.map-pin', this.canvas), this.headers)
    const leave = (): void => this.leave()
    this.plot.addEventListener('scroll', () => {
      leave()
      this.frame.now()
    })
    onPointing(this.plot, (event) => this.point(event), leave)
    this.plot.addEventListener('click', (event) => this.click(event))
    this.plot.addEventListener('dblclick', (event) => {
      const hit = this.hit(event)
      if (hit) this.toggleFocus(this.scene!.layout.pieces[hit.piece].segment)
    })
  }

  show(context: ViewContext, scene: Omit<MapScene, 'layout'>, groups: Groups, choice: MapChoice): void {
    const { clientWidth, clientHeight } = this.plot
    if (clientWidth === 0) return
    const { state } = scene
    const width = clientWidth - this.gutter - 2 * MARGIN
    const layout = layOutMap(state, groups, {
      width,
      height: clientHeight,
      sort: choice.sort,
      zoom: choice.zoom,
      focus: choice.focus === null ? -1 : segmentAt(state, choice.focus),
      coarsest: context.extent,
    })
    this.scene = { ...scene, layout, groups, context }
    this.hover = null
    this.tooltip.hide()
    this.showHeaders(this.scene)
    this.headers.style.height = `${layout.height}px`
    // A new place scrolls the view there; another moment leaves it where it is.
    const choiceKey = JSON.stringify([choice, width])
    if (choiceKey !== this.choiceKey && choice.focus !== null) this.plot.scrollTop = 0
    this.choice = choice
    this.choiceKey = choiceKey
    this.frame.now()
  }

  get layout(): MapLayout | null {
    return this.scene?.layout ?? null
  }

  /** For tests: the middle of an allocation's first pixel row in CSS pixels of the window; null where it is not shown. */
  placeOf(id: number): { x: number; y: number } | null {
    const found = this.scene && placeOf(this.scene, id)
    if (!found) return null
    const box = this.plot.getBoundingClientRect()
    return {
      x: box.left + this.left + found.x + found.width / 2,
      y: box.top + found.y + LINE / 2 - this.plot.scrollTop,
    }
  }

  /** Arrows up and down, with shift from segment to segment; Z zooms into the segment. */
  key(event: KeyboardEvent): boolean {
    if (!this.scene) return false
    switch (event.key) {
      case 'ArrowDown':
        return (this.move(this.scene, 1, event.shiftKey), true)
      case 'ArrowUp':
        return (this.move(this.scene, -1, event.shiftKey), true)
      case 'z':
      case 'Z':
        return this.focusHere(this.scene)
      case 'Enter':
        return document.activeElement === this.plot && this.focusHere(this.scene)
      default:
        return false
    }
  }

  protected draw(): void {
    const { scene, canvas, plot } = this
    if (!scene) return
    const { layout, state } = scene
    const ctx = this.begin(canvas)
    const ratio = devicePixelRatio || 1
    const top = plot.scrollTop
    ctx.setTransform(ratio, 0, 0, ratio, this.left * ratio, -top * ratio)
    const first = Math.max(0, lineAt(layout, top))
    const last = Math.min(layout.lineY.length - 1, lineAt(layout, top + plot.clientHeight))
    this.painter.paint(ctx, scene, first, last, ratio)
    if (this.gutter) drawGutter(ctx, scene, first, last)
    const hasCursor = this.cursor !== null && document.activeElement === plot
    const cursor = hasCursor ? blockAt(state, this.cursor!) : -1
    drawMarks(ctx, scene, { cursor, hover: this.hover?.block ?? -1 }, first, last)
  }

  private get gutter(): number {
    return this.plot.clientWidth < 560 ? 0 : GUTTER
  }

  private get left(): number {
    return this.gutter + MARGIN
  }

  private showHeaders({ layout, groups }: Scene): void {
    fill(
      this.headers,
      ...layout.groups.map((group) => {
        const name = h('strong.clip', groups.names[group.group])
        const header = h('div.map-header', name, h('span.soft.clip', groupTotals(group)))
        header.style.top = `${group.y}px`
        return header
      }),
    )
  }

  private hit({ clientX, clientY }: MouseEvent): Hit | null {
    const { left, top } = this.plot.getBoundingClientRect()
    return this.scene && hitAt(this.scene, clientX - left - this.left, clientY - top + this.plot.scrollTop)
  }

  private point(event: PointerEvent): void {
    const hit = this.hit(event)
    const { scene } = this
    if (!hit || !scene) return this.leave()
    if (this.hover?.block !== hit.block) {
      this.hover = hit
      this.frame.request()
    }
    const { left, top } = this.element.getBoundingClientRect()
    const { state, replay, context, groups } = scene
    const { segment } = scene.layout.pieces[hit.piece]
    const lines = describeBlock(state, replay, context.stacks, groups, segment, hit.block)
    const swatch = state.blockId[hit.block] < 0 ? null : css(colourOf(scene, hit.block))
    this.tooltip.show(lines, event.clientX - left, event.clientY - top, swatch)
  }

  private leave(): void {
    this.tooltip.hide()
    if (!this.hover) return
    this.hover = null
    this.frame.request()
  }

  private click(event: MouseEvent): void {
    const hit = this.hit(event)
    if (hit && this.scene) this.select(this.scene, hit.block)
  }

  /** Puts the cursor on a block and selects its allocation; -1 is returned where it is free. */
  private select({ state }: Scene, block: number): number {
    this.cursor = state.blockStart[block]
    const id = state.blockId[block]
    this.parts.store.set({ select: id < 0 ? null : id })
    this.frame.request()
    return id
  }

  /** To the next block by address or, by segments, to the first block of the next. */
  private move(scene: Scene, by: number, bySegment: boolean): void {
    const { state, context, layout, replay } = scene
    if (state.blocks === 0) return
    const here = this.here(scene)
    let block = here < 0 ? state.first[layout.pieces[0]?.segment ?? 0] : here + by
    if (here >= 0 && bySegment)
      block = state.first[Math.min(state.segments - 1, Math.max(0, segmentOf(state, here) + by))]
    block = Math.min(state.blocks - 1, Math.max(0, block))
    if (this.select(scene, block) < 0) this.parts.announce(headlineOf(state, replay, context.stacks, block))
    this.reveal(block)
  }

  /** The keyboard's block: the selection, or the last one. */
  private here(scene: Scene): number {
    const { select } = scene.context.state
    if (select !== null && isLive(scene, select)) return blockAt(scene.state, scene.replay.address[select])
    return this.cursor === null ? -1 : blockAt(scene.state, this.cursor)
  }

  private focusHere(scene: Scene): boolean {
    const here = this.here(scene)
    if (here < 0 && this.choice?.focus === null) return false
    this.toggleFocus(here < 0 ? 0 : segmentOf(scene.state, here))
    return true
  }

  private toggleFocus(segment: number): void {
    const { layout, state } = this.scene!
    const shown = layout.pieceOf.reduce((count, piece) => count + Number(piece >= 0), 0)
    this.onFocus(shown === 1 && state.segments > 1 ? null : state.start[segment])
  }

  private reveal(block: number): void {
    const { plot } = this
    const top = lineTopOf(this.scene!, block)
    if (top === null) return
    const below = top + LINE - plot.clientHeight
    if (top < plot.scrollTop) plot.scrollTop = Math.max(0, top - REVEAL_MARGIN)
    else if (below > plot.scrollTop) plot.scrollTop = below + REVEAL_MARGIN
  }
}
