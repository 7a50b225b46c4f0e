// The legend of the map: colours between two numbers of bytes.

import { formatBytes } from '../layout/format'
import { fill, h } from '../ui/dom'
import type { HeatScale } from './heat-cells'

export function cssOfLevel(palette: Uint8Array, level: number): string {
  return `rgb(${palette[4 * level]} ${palette[4 * level + 1]} ${palette[4 * level + 2]})`
}

export class ColourScale {
  readonly element = h('div', { class: 'job-scale' })
  private shown = ''

  render(scale: HeatScale, palette: Uint8Array, name: string): void {
    const key = [scale.low, scale.high, scale.beyond, name, palette.join()].join()
    if (key === this.shown) return
    this.shown = key
    const stops = Array.from({ length: 17 }, (_, i) => cssOfLevel(palette, 1 + Math.round((254 * i) / 16)))
    const bar = h('span', { class: 'job-scale-bar', 'aria-hidden': 'true' })
    bar.style.background = `linear-gradient(to right, ${stops.join(', ')})`
    const none = h('span', { class: 'job-scale-none', 'aria-hidden': 'true' })
    none.style.background = cssOfLevel(palette, 0)
    const [low, high] = [scale.low, scale.high].map((bytes) => textOf(bytes, scale.isDiverging))
    const beyond = scale.beyond === null ? null : textOf(scale.beyond, scale.isDiverging)
    const clipped = `A few ranks exceed the colours, up to ${beyond}`
    fill(
      this.element,
      h('span', {}, low),
      bar,
      beyond === null
        ? h('span', {}, high)
        : h('span', { class: 'job-scale-clipped', title: clipped }, `${high} or more, up to ${beyond}`),
      none,
      h('span', { class: 'soft' }, 'not recorded'),
      h(
        'span',
        { class: 'offscreen' },
        `${name}: colours from ${low} to ${high}${beyond === null ? '' : `. ${clipped}`}`,
      ),
    )
  }
}

function textOf(bytes: number, isSigned: boolean): string {
  if (!isSigned) return bytes === 0 ? '0' : formatBytes(Math.round(bytes))
  return `${bytes < 0 ? '−' : '+'}${formatBytes(Math.round(Math.abs(bytes)))}`
}
