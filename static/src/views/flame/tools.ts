// The controls of the flame view in the toolbar. They show the choices and change the options only.

import type { Chains } from '../../flame/layout'
import { MEASURES } from '../../flame/weigh'
import { button, menu, Segmented } from '../../ui/controls'
import { copyButton, h } from '../../ui/dom'
import type { Store } from '../../ui/state'
import type { Choices } from './choices'
import { MEASURE_NAMES } from './describe'

export interface ToolActions {
  folded(): string
  saveSpeedscope(): void
}

const CHAINS: readonly (readonly [Chains, string])[] = [
  ['outer', 'Fold common frames'],
  ['all', 'Fold every chain'],
  ['none', 'Show every frame'],
]

export class FlameTools {
  readonly element: HTMLElement
  private readonly measure: HTMLSelectElement
  private readonly chains: HTMLSelectElement
  private readonly root: Segmented<string>
  private readonly merge: Segmented<string>

  constructor(
    private readonly store: Store,
    actions: ToolActions,
  ) {
    this.measure = menu(
      'What widths stand for',
      MEASURES.map((measure) => [measure, MEASURE_NAMES[measure]]),
      (measure) => this.choose('flame.measure', measure, MEASURES[0]),
    )
    this.chains = menu('Chains of frames', CHAINS, (chains) => {
      store.setOption('flame.open', null)
      this.choose('flame.chains', chains, 'outer')
    })
    this.chains.title = 'Chains of frames without a branch'
    this.root = this.segmented('Where the tree starts', 'flame.root', [
      ['root', 'Root first', 'Outermost frames at the top: who allocates, from the program down'],
      ['leaf', 'Leaf first', 'Innermost frames at the top: what allocates, and who calls it'],
    ])
    this.merge = this.segmented('Which frames are one', 'flame.merge', [
      ['function', 'By function', 'Lines of one function are one frame'],
      ['line', 'By line', 'Every line is a frame of its own'],
    ])
    this.element = h(
      'div.row.wrap',
      this.measure,
      this.root.element,
      this.merge.element,
      this.chains,
      copyButton(
        'Copy folded',
        actions.folded,
        'Copy what is shown as folded stacks: one line per stack, with its weight',
      ),
      button('speedscope', 'Save what is shown as a file for speedscope', actions.saveSpeedscope),
    )
  }

  render({ measure, root, merge, chains }: Choices, hasTimes: boolean, compares: boolean): void {
    this.measure.value = measure
    this.chains.value = chains
    for (const option of this.measure.options) {
      if (option.value === 'diff') option.hidden = option.disabled = !compares
      else option.disabled = option.value === 'seconds' && !hasTimes
    }
    this.root.show(root)
    this.merge.show(merge)
  }

  private segmented(
    label: string,
    name: string,
    choices: readonly (readonly [string, string, string])[],
  ): Segmented<string> {
    return new Segmented(label, choices, (value) => this.choose(name, value, choices[0][0]))
  }

  private choose(name: string, value: string, byDefault: string): void {
    this.store.setOption(name, value === byDefault ? null : value)
  }
}
