// The reserved view's buttons: its axis, which pictures it shows, jumps to the worst moments, and the what-if panel.

import { button, Segmented } from '../../ui/controls'
import { h } from '../../ui/dom'
import type { Store } from '../../ui/state'
import { AxisSwitch } from '../shared/controls'
import type { ViewContext } from '../view'
import type { ChartChoice } from './chart-layout'

export interface ReservedActions {
  goToWorstFragmentation(): void
  goToWorstSplit(): void
}

export class ReservedTools {
  readonly element: HTMLElement
  readonly axis: AxisSwitch
  private readonly pictures: Segmented<string | null>
  private readonly only: HTMLButtonElement
  private readonly worst: HTMLButtonElement
  private readonly split: HTMLButtonElement
  private readonly whatIf: HTMLButtonElement

  constructor(store: Store, actions: ReservedActions) {
    this.axis = new AxisSwitch(store)
    this.pictures = new Segmented(
      'Pictures',
      [
        [null, 'Both', 'What to show'],
        ['parts', 'Parts', 'What to show'],
        ['segments', 'Segments', 'What to show'],
      ],
      (value) => store.setOption('reserved.show', value),
    )
    this.only = button('Without allocated', 'Show fragmentation alone', () =>
      store.setOption('reserved.base', store.state.options['reserved.base'] === 'none' ? null : 'none'),
    )
    this.worst = button('Worst fragmentation', 'The moment with the most bytes reserved and not allocated (F)', () =>
      actions.goToWorstFragmentation(),
    )
    this.split = button(
      'Worst split',
      'The moment with the most bytes in rounding and inactive splits, which empty_cache() cannot release (G)',
      () => actions.goToWorstSplit(),
    )
    this.whatIf = button('What if', 'Replay the trace under other settings of the allocator', () =>
      store.setOption('reserved.whatif', store.state.options['reserved.whatif'] === undefined ? '' : null),
    )
    this.element = h(
      'div.row.wrap',
      this.axis.element,
      this.pictures.element,
      this.only,
      this.worst,
      this.split,
      this.whatIf,
    )
  }

  /** `isReplayed`: addresses are known, so that segments could be replayed. */
  render(context: ViewContext, choice: ChartChoice, isReplayed: boolean): void {
    const { info, state } = context
    this.axis.render(state, info)
    this.pictures.show(choice.parts && choice.segments ? null : choice.parts ? 'parts' : 'segments')
    this.only.setAttribute('aria-pressed', String(choice.fragmentationOnly))
    this.only.hidden = !choice.parts
    this.worst.hidden = info.events === 0
    this.split.hidden = this.whatIf.hidden = !isReplayed || info.events === 0
    const isAsking = isReplayed && state.options['reserved.whatif'] !== undefined
    this.whatIf.setAttribute('aria-pressed', String(isAsking))
  }
}
