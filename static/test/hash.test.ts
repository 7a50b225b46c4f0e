import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { helpFor } from '../src/app/help'
import { bindHash, MARKS, writeHash } from '../src/app/hash'
import { type State, Store } from '../src/ui/state'

const START: State = {
  device: 0,
  view: 'timeline',
  axis: 'event',
  x: null,
  y: null,
  select: null,
  oom: null,
  stack: null,
  at: null,
  query: '',
  colour: 'stack',
  options: {},
  theme: 'system',
  noise: false,
}

/** A browser's history: entries of an address and a state, as the specification has them. */
function openPage(): {
  store: Store
  history: string[]
  back(): void
  wait(ms?: number): void
  enter(hash: string): void
} {
  mock.timers.reset()
  mock.timers.enable({ apis: ['setTimeout'] })
  const entries: { hash: string; state: unknown }[] = [{ hash: '', state: null }]
  let at = 0
  let heard = (): void => {}
  const move = (hash: string, state: unknown): void => void (entries[at] = { hash: hash.replace(/^\/page/, ''), state })
  Object.assign(globalThis, {
    location: {
      get href() {
        return `/page${entries[at].hash}`
      },
      get hash() {
        return entries[at].hash
      },
    },
    history: {
      get state() {
        return entries[at].state
      },
      replaceState: (state: unknown, _: string, hash = entries[at].hash) => move(hash, state),
      pushState: (state: unknown, _: string, hash: string) => {
        entries.splice(++at)
        move(hash, state)
      },
    },
    window: { setTimeout, addEventListener: (_: string, listener: () => void) => (heard = listener) },
  })
  const store = new Store(START)
  bindHash(store, START, 2)
  return {
    store,
    get history() {
      return entries.map(({ hash }) => hash)
    },
    back() {
      at--
      heard()
    },
    enter(hash) {
      entries.splice(++at)
      entries[at] = { hash, state: null }
      heard()
    },
    wait: (ms = 1000) => mock.timers.tick(ms),
  }
}

test('views, selections and jumps are entries of the history, pans, zooms and letters are not', () => {
  const page = openPage()
  const { store } = page
  const steps: [() => void, boolean][] = [
    [() => store.set({ x: [0, 50] }), false],
    [() => store.set({ view: 'flame' }), true],
    [() => store.set({ query: 'a' }), false],
    [() => store.set({ query: 'ab' }), false],
    [() => store.set({ select: 7 }), true],
    [() => store.set({ x: [10, 20], y: [0, 5] }), false],
    [() => store.jump({ x: [100, 110] }), true],
    [() => store.set({ colour: 'size' }), false],
    [() => store.set({ stack: 3 }), true],
    [() => store.set({ oom: 12, at: 12 }), true],
    [() => store.set({ device: 1 }), true],
    [() => store.setOption('job.rank', '700'), true],
    [() => store.setOption('job.columns', '1..2'), false],
    [() => store.setOption('job.tab', 'stacks'), true],
  ]
  const states: State[] = [START]
  for (const [step, isEntry] of steps) {
    const before = page.history.length
    step()
    page.wait()
    assert.equal(page.history.length - before, Number(isEntry))
    if (isEntry) states.push(store.state)
    else states[states.length - 1] = store.state
    assert.equal(page.history.at(-1), writeHash(store.state, START))
  }
  for (const state of states.slice(0, -1).reverse()) {
    page.back()
    page.wait()
    assert.deepEqual(store.state, state)
  }
  assert.equal(page.history.length, states.length, 'going back adds nothing')
})

test('jumps in quick succession are entries of their own, as long as they are few', () => {
  const page = openPage()
  const { store } = page
  for (let at = 0; at < 3; at++) {
    store.set({ x: [at, at + 1] })
    store.jump({ at })
    page.wait(1)
  }
  page.back()
  assert.equal(store.state.at, 1)
  page.back()
  assert.equal(store.state.at, 0)
  for (let at = 100; at < 200; at++) {
    store.jump({ at })
    page.wait(1)
  }
  assert.ok(page.history.length < 30, 'browsers refuse a hundred')
  page.wait()
  assert.equal(page.history.at(-1), writeHash(store.state, START))
})

test('Back keeps bookmarks and theme; an address that is entered has its own', () => {
  const page = openPage()
  const { store } = page
  store.set({ view: 'table' })
  page.wait()
  store.setOption(MARKS, '[["one","#select=1"]]')
  store.set({ theme: 'dark' })
  page.wait()
  page.back()
  assert.equal(store.state.view, 'timeline')
  assert.deepEqual([store.state.theme, store.state.options[MARKS]], ['dark', '[["one","#select=1"]]'])
  page.enter('#view=events')
  assert.deepEqual([store.state.view, store.state.theme, store.state.options], ['events', 'system', {}])
})

test('help begins with the view on screen and leaves out views that the report has not', () => {
  const views = ['timeline', 'segments', 'flame', 'summary'] as const
  for (const view of views) {
    const groups = helpFor(view, views)
    const own = groups.filter((group) => group.views.includes(view)).length
    assert.ok(groups.slice(0, own).every((group) => group.views.includes(view)))
    assert.equal(groups[own].title, 'All views')
    assert.ok(!groups.some(({ title }) => title === 'Job' || title === 'Events'))
  }
})
