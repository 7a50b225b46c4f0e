// What most of some names begin with, to be said once: "model.decoder." of the modules of a model.

/** Share of the names that must begin with it. */
const MOST = 0.8
/** Shorter ones are not worth a note. */
const SHORTEST = 8

/** Up to a separator; '' where too few names have a beginning in common. O(letters). */
export function commonStart(names: readonly string[]): string {
  const sorted = names.filter(Boolean).sort()
  if (sorted.length < 2) return ''
  // Names with a beginning in common stand beside each other.
  const many = Math.max(2, Math.ceil(MOST * sorted.length))
  let longest = ''
  for (let i = 0; i + many <= sorted.length; i++) {
    const [a, b] = [sorted[i], sorted[i + many - 1]]
    let length = 0
    while (length < a.length && a[length] === b[length]) length++
    const start = /^.*(?:[./_\- ]|::)/.exec(a.slice(0, length))?.[0] ?? ''
    // A name may not vanish.
    if (start.length > longest.length && start.length < a.length) longest = start
  }
  return longest.length >= SHORTEST ? longest : ''
}

/** "…attn.proj" */
export function without(name: string, start: string): string {
  return start && name?.startsWith(start) && name !== start ? `…${name.slice(start.length)}` : name
}
