// The controls of the flame view in the toolbar. They show the choices and change the options only.

import type { Chains } from '../../flame/layout'
import { MEASURES } from '../../flame/weigh'
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
  private readonly measure = h('select', { 'aria-label': 'What widths stand for', title: 'What widths stand for' })
  private readonly chains = h('select', {
    'aria-label': 'Chains of frames',
    title: 'Chains of frames without a branch',
  })
  private readonly segments: { name: string; value: string; button: HTMLButtonElement }[] = []

  constructor(
    private readonly store: Store,
    actions: ToolActions,
  ) {
    for (const measure of MEASURES) this.measure.append(h('option', { value: measure }, MEASURE_NAMES[measure]))
    for (const [value, label] of CHAINS) this.chains.append(h('option', { value }, label))
    this.measure.addEventListener('change', () => this.choose('flame.measure', this.measure.value, MEASURES[0]))
    this.chains.addEventListener('change', () => {
      store.setOption('flame.open', null)
      this.choose('flame.chains', this.chains.value, 'outer')
    })
    this.element = h(
      'div',
      { class: 'row wrap' },
      this.measure,
      this.segmented('Where the tree starts', 'flame.root', [
        ['root', 'Root first', 'Outermost frames at the top: who allocates, from the program down'],
        ['leaf', 'Leaf first', 'Innermost frames at the top: what allocates, and who calls it'],
      ]),
      this.segmented('Which frames are one', 'flame.merge', [
        ['function', 'By function', 'Lines of one function are one frame'],
        ['line', 'By line', 'Every line is a frame of its own'],
      ]),
      this.chains,
      copyButton(
        'Copy folded',
        actions.folded,
        'Copy what is shown as folded stacks: one line per stack, with its weight',
      ),
      h(
        'button',
        { title: 'Save what is shown as a file for speedscope', onclick: actions.saveSpeedscope },
        'speedscope',
      ),
    )
  }

  render({ measure, root, merge, chains }: Choices, hasTimes: boolean, compares: boolean): void {
    this.measure.value = measure
    this.chains.value = chains
    for (const option of this.measure.options) {
      if (option.value === 'diff') option.hidden = option.disabled = !compares
      else option.disabled = option.value === 'seconds' && !hasTimes
    }
    for (const { name, value, button } of this.segments) {
      button.setAttribute('aria-pressed', String(value === (name === 'flame.root' ? root : merge)))
    }
  }

  private segmented(label: string, name: string, choices: readonly (readonly [string, string, string])[]): HTMLElement {
    const group = h('div', { class: 'segmented', role: 'group', 'aria-label': label })
    for (const [value, text, title] of choices) {
      const button = h('button', { title, onclick: () => this.choose(name, value, choices[0][0]) }, text)
      this.segments.push({ name, value, button })
      group.append(button)
    }
    return group
  }

  private choose(name: string, value: string, byDefault: string): void {
    this.store.setOption(name, value === byDefault ? null : value)
  }
}
