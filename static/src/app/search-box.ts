// The search box: a query as it is typed, what it matches, and where it is bad. The state holds the last good query.

import { positionOf } from '../data/held-memory'
import { atEvent, formatBytes, formatCount } from '../layout/format'
import { parse } from '../search/grammar'
import { liveMatches, type Matches, nextBySize, QueryError, rankBySize } from '../search/matches'
import { type Source, type Suggestion, suggest } from '../search/suggest'
import { fill, h } from '../ui/dom'
import { FrameRequest } from '../ui/frame-request'
import { patched, type State, type Store } from '../ui/state'
import type { Scene } from '../views/shared/scene'
import { SearchHelp, SearchList } from './search-drop'
import { Memo } from '../views/memo'

/** An error at the end of the box may be gone with the next letter: it is shown when none comes, after so many ms. */
const TOLD_AFTER_MS = 600

/** Option of the state: the timeline shows the matches alone. */
export const ONLY = 'timeline.only'

export interface SearchParts {
  store: Store
  scene(): Scene | null
  /** What the query of the state matches; null without one, or without data. */
  matches(): Matches | null
  /** Brings an event of the device into sight where the view on screen has a window. */
  reveal(event: number): void
}

export class SearchBox {
  readonly element: HTMLElement
  private readonly input: HTMLInputElement
  /** Under the text of the box, letter for letter the same: it underlines what is bad. */
  private readonly mirror = h('div.search-mirror', { 'aria-hidden': true })
  private readonly status = h('output.clip.search-status', { id: 'search-status' })
  private readonly message = h('p.floating.search-message', { id: 'search-message', role: 'alert', hidden: true })
  /** On the timeline: the matches alone, stacked from zero. */
  private readonly only = h('button.small', { title: 'Stack the matches alone, from zero', hidden: true })
  private readonly list: SearchList
  readonly help: SearchHelp
  /** The query that the box has put into the state or taken from it. */
  private applied = ''
  /** The frame that evaluates the box; 0: nothing was typed since. */
  private readonly frame = new FrameRequest(() => this.answer())
  private suggests = false
  private telling = 0
  private readonly rank = new Memo<number>()
  private readonly live = new Memo<number>()
  private announced = ''
  private isBad = false

  constructor(private readonly parts: SearchParts) {
    this.input = h('input.search-input', {
      type: 'text',
      role: 'combobox',
      placeholder: 'Search: attention size>1MiB live:peak',
      'aria-label': 'Search allocations',
      title: 'Search (/)',
      'aria-autocomplete': 'list',
      'aria-expanded': 'false',
      'aria-controls': 'search-list',
      'aria-describedby': 'search-status',
      autocomplete: 'off',
      autocapitalize: 'off',
      autocorrect: 'off',
      spellcheck: 'false',
      maxlength: 4000,
    })
    this.list = new SearchList(this.input)
    this.list.onPick = (suggestion) => this.take(suggestion)
    this.help = new SearchHelp((query) => this.put(query, query.length))
    this.element = h(
      'div.row.search',
      { role: 'search' },
      h('div.search-field', this.mirror, this.input, this.help.button),
      this.status,
      this.only,
      h('div.column.search-drop', this.list.element, this.message, this.help.element),
    )
    this.only.textContent = 'Only these'
    this.only.addEventListener('click', () => {
      const { store } = parts
      const { options } = store.state
      store.set({ options: patched(options, { [ONLY]: options[ONLY] ? null : 'yes' }), y: null })
    })
    const { input } = this
    input.addEventListener('input', () => this.ask(true))
    input.addEventListener('scroll', () => (this.mirror.scrollLeft = input.scrollLeft))
    input.addEventListener('keydown', (event) => this.key(event))
    input.addEventListener('focus', () => input.value === '' && this.showSuggestions())
    input.addEventListener('blur', () => this.list.close())
  }

  focus(): void {
    this.input.focus()
    this.input.select()
  }

  /** Shows the state: its query where another than the box's own was set, and what it matches. */
  render(state: State): void {
    if (state.query !== this.applied) {
      this.applied = state.query
      this.input.value = state.query
      this.check()
    }
    this.only.hidden = state.view !== 'timeline' || state.query === ''
    this.only.setAttribute('aria-pressed', String(state.options[ONLY] === 'yes'))
    this.tell(state)
  }

  // Typing

  /** Evaluates the text of the box on the next frame, once however many letters were typed. */
  private ask(withSuggestions: boolean): void {
    this.suggests ||= withSuggestions
    this.frame.request()
  }

  private answer(): void {
    if (this.suggests && document.activeElement === this.input) this.showSuggestions()
    this.suggests = false
    if (!this.check()) return
    const query = this.input.value.trim()
    if (query === this.applied) return
    this.applied = query
    this.parts.store.set({ query })
  }

  /** Whether the query in the box is good. */
  private check(): boolean {
    const { input } = this
    let bad: QueryError | null = null
    try {
      parse(input.value)
    } catch (error) {
      if (!(error instanceof QueryError)) throw error
      bad = error
    }
    this.isBad = bad !== null
    this.tell(this.parts.store.state)
    clearTimeout(this.telling)
    const isUnfinished =
      bad !== null && bad.position + bad.length === input.value.length && document.activeElement === input
    this.mark(isUnfinished ? null : bad)
    if (isUnfinished) this.telling = window.setTimeout(() => this.mark(bad), TOLD_AFTER_MS)
    return bad === null
  }

  /** Underlines what is bad and says why; null: nothing is. */
  private mark(bad: QueryError | null): void {
    const { input, message, mirror } = this
    input.setAttribute('aria-invalid', String(bad !== null))
    input.setAttribute('aria-describedby', bad ? 'search-message' : 'search-status')
    this.element.classList.toggle('bad', bad !== null)
    message.hidden = !bad
    fill(mirror)
    if (!bad) return
    const { position, length, reason } = bad
    fill(message, reason)
    const text = input.value
    fill(
      mirror,
      text.slice(0, position),
      h('mark', text.slice(position, position + length)),
      text.slice(position + length),
    )
    mirror.scrollLeft = input.scrollLeft
  }

  private showSuggestions(): void {
    const { input } = this
    this.list.show(suggest(input.value, input.selectionStart ?? input.value.length, this.source()))
  }

  private source(): Source | null {
    const scene = this.parts.scene()
    if (!scene?.data || !scene.stacks) return null
    return { data: scene.data, stacks: scene.stacks, info: scene.info }
  }

  private take({ insert, from, to }: Suggestion): void {
    const { value } = this.input
    this.put(value.slice(0, from) + insert + value.slice(to), from + insert.length)
    // A field has been chosen: its values come next.
    if (insert.endsWith(':')) this.showSuggestions()
    else this.list.close()
  }

  private put(query: string, caret: number): void {
    this.input.value = query
    this.input.focus()
    this.input.setSelectionRange(caret, caret)
    this.ask(false)
  }

  private key(event: KeyboardEvent): void {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return
    const { list, input } = this
    // Keys may be pressed faster than frames are drawn: they apply to what was typed before them.
    if (this.frame.isPending && ['ArrowDown', 'ArrowUp', 'Tab', 'Enter'].includes(event.key)) this.frame.now()
    const { chosen } = list
    switch (event.key) {
      case 'ArrowDown':
      case 'ArrowUp':
        if (list.isOpen) list.move(event.key === 'ArrowDown' ? 1 : -1)
        else this.showSuggestions()
        break
      case 'Tab':
        if (!chosen || event.shiftKey) return
        this.take(chosen)
        break
      case 'Enter':
        if (chosen) this.take(chosen)
        else this.step(event.shiftKey ? -1 : 1)
        break
      case 'Escape': {
        const hasClosed = this.help.close() || chosen !== null
        list.close()
        if (!hasClosed && input.value === '') input.blur()
        else if (!hasClosed) this.put('', 0)
        break
      }
      default:
        return
    }
    event.preventDefault()
    event.stopPropagation()
  }

  // Matches

  /** Selects the next match by size, or the one before. */
  private step(by: 1 | -1): void {
    this.list.close()
    const matches = this.parts.matches()
    const scene = this.parts.scene()
    if (!matches || !scene?.data || matches.count === 0) return
    const id = nextBySize(scene.data, matches, this.parts.store.state.select, by)
    this.parts.store.set({ select: id })
    this.parts.reveal(Math.max(0, scene.data.start[id] - 1))
  }

  private tell(state: State): void {
    const scene = this.parts.scene()
    // The count of the last good query says nothing of a bad one.
    const matches = state.query === '' || this.isBad ? null : this.parts.matches()
    let text = ''
    if (matches && scene?.data) {
      const { data, info } = scene
      const position = positionOf(info, state.at)
      const live = this.live.get([matches, position], () => liveMatches(data, matches.mask, position))
      const moment = state.at === null || state.at === info.peak_event ? 'at the peak' : atEvent(state.at)
      text = `${formatCount(matches.count)} ${matches.count === 1 ? 'match' : 'matches'}, ${formatBytes(matches.bytes)}; ${formatBytes(live)} ${moment}`
      const id = state.select
      if (id !== null && matches.mask[id]) {
        const before = this.rank.get([matches, id], () => rankBySize(data, matches, id))
        text = `${formatCount(before + 1)} of ${text}`
      }
      if (matches.notes.length > 0) text += ` (${matches.notes.join('; ')})`
    }
    if (text === this.announced) return
    this.announced = text
    this.status.textContent = text
    this.status.title = text
  }
}
