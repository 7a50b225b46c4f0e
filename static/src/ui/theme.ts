// Light or dark: the system's choice until the reader makes one.

import type { Store, Theme } from './state'

const NEXT: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' }
const LABEL: Record<Theme, string> = { system: 'Theme: system', light: 'Theme: light', dark: 'Theme: dark' }

const systemDark = (): MediaQueryList => window.matchMedia('(prefers-color-scheme: dark)')

export function isDark(theme: Theme): boolean {
  return theme === 'dark' || (theme === 'system' && systemDark().matches)
}

/** Sets data-theme on the document and calls back when the theme changes, by button or by system. */
export function bindTheme(store: Store, button: HTMLButtonElement, onChange: () => void): void {
  const apply = (): void => {
    const { theme } = store.state
    const root = document.documentElement
    if (theme === 'system') root.removeAttribute('data-theme')
    else root.setAttribute('data-theme', theme)
    button.textContent = LABEL[theme]
    button.title = `Switch to ${LABEL[NEXT[theme]].toLowerCase()}`
    onChange()
  }
  button.addEventListener('click', () => store.set({ theme: NEXT[store.state.theme] }))
  store.subscribe((state, before) => {
    if (state.theme !== before.theme) apply()
  })
  systemDark().addEventListener('change', apply)
  apply()
}
