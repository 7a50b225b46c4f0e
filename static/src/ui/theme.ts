// Light or dark: the system's choice until the reader makes one.

import type { Store, Theme } from './state'

const NEXT: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' }
const LABEL: Record<Theme, string> = { system: 'Theme: system', light: 'Theme: light', dark: 'Theme: dark' }

const SYSTEM_DARK = '(prefers-color-scheme: dark)'
const systemDark = (): MediaQueryList => window.matchMedia(SYSTEM_DARK)

export function isDark(theme: Theme): boolean {
  return theme === 'dark' || (theme === 'system' && systemDark().matches)
}

/** Sets when dark colours hold (css/tokens.css), and calls back when the theme changes, by button or by system. */
export function bindTheme(store: Store, button: HTMLButtonElement, onChange: () => void): void {
  // The page's own style: those that extensions add may not be read.
  const rules = [...(document.querySelector<HTMLStyleElement>('style#style')?.sheet?.cssRules ?? [])]
  const dark = rules.find((rule) => rule instanceof CSSMediaRule && rule.conditionText.includes(SYSTEM_DARK))
  const apply = (): void => {
    const { theme } = store.state
    const condition = { system: `screen and ${SYSTEM_DARK}`, light: 'not all', dark: 'screen' }[theme]
    if (dark instanceof CSSMediaRule) dark.media.mediaText = condition
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
