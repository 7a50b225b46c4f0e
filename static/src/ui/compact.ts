// Small windows, as css/compact.css has them: there some rows scroll sideways, which the keyboard must be able to do too.

const COMPACT = '(max-width: 700px), (max-height: 600px)'

/** Makes a row a stop of the keyboard while the window is small, and none while it is shown whole. */
export function scrollsWhenSmall<E extends HTMLElement>(row: E): E {
  const small = matchMedia(COMPACT)
  const update = (): void => {
    if (small.matches) row.tabIndex = 0
    else row.removeAttribute('tabindex')
  }
  small.addEventListener('change', update)
  update()
  return row
}
