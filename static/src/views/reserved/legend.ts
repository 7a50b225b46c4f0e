// What the areas and lines of the reserved view's pictures stand for.

import { scrollsWhenSmall } from '../../ui/compact'
import { swatch } from '../../ui/controls'
import { fill, h } from '../../ui/dom'
import type { Groups } from '../shared/groups'
import { css, groupColour, type Inks } from '../shared/inks'
import type { ChartChoice } from './chart-layout'

export interface LegendInput {
  inks: Inks
  dark: boolean
  choice: ChartChoice
  /** Null where addresses were left out: the parts of what is not allocated are not known. */
  groups: Groups | null
  hasWhatIf: boolean
  hasDeviceUse: boolean
}

export class ReservedLegend {
  readonly element = scrollsWhenSmall(h('ul.row.wrap.segments-legend', { 'aria-label': 'Legend' }))

  render(input: LegendInput): void {
    fill(this.element, ...areas(input), ...lines(input))
  }
}

/** The shown parts of reserved memory, then the groups of segments. */
function areas({ inks, dark, choice, groups }: LegendInput): HTMLElement[] {
  const area = (label: string, colour: string): HTMLElement => {
    const mark = swatch(colour)
    mark.style.outline = `1px solid ${css(inks.line)}`
    return h('li', mark, label)
  }
  const parts = groups
    ? ([
        ['Allocated', inks.allocated],
        ['Rounding', inks.rounding],
        ['Inactive split', inks.splitArea],
        ['Unused segments', inks.wholeArea],
      ] as const)
    : ([
        ['Allocated', inks.allocated],
        ['Reserved, not allocated', inks.wholeArea],
      ] as const)
  const shownParts = choice.parts ? parts.slice(choice.fragmentationOnly ? 1 : 0) : []
  const names = choice.segments && groups ? groups.names.slice(0, groups.count) : []
  return [
    ...shownParts.map(([label, colour]) => area(label, css(colour))),
    ...names.map((name, group) => area(name, css(groupColour(group, dark)))),
  ]
}

/** Areas show one moment of what a pixel's width stands for, lines the most within it. */
function lines({ inks, choice, groups, hasWhatIf, hasDeviceUse }: LegendInput): HTMLElement[] {
  const line = (label: string, colour: string): HTMLElement => {
    const mark = swatch(colour)
    mark.classList.add('line')
    return h('li', mark, label)
  }
  const { parts, segments, fragmentationOnly } = choice
  return [
    segments || !fragmentationOnly ? line('Most allocated', css(inks.ink)) : null,
    parts ? line(fragmentationOnly ? 'Most not allocated' : 'Most reserved', css(inks.reserved)) : null,
    hasDeviceUse && parts && !fragmentationOnly ? line('Used on the device', css(inks.deviceUsed)) : null,
    hasWhatIf && !fragmentationOnly ? line('Most reserved, replayed', css(inks.accent)) : null,
    parts && fragmentationOnly && groups ? line('Largest free range', css(inks.largest)) : null,
  ].filter((item) => item !== null)
}
