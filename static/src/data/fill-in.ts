// Sentences of the shared data with their values put in.

/** `text` with each {name} replaced by its value. */
export function fillIn(text: string, values: Record<string, string | number>): string {
  return text.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name]))
}
