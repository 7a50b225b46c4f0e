// What was worked out last, as long as what it was worked out from is the same.

export class Memo<T> {
  private from: readonly unknown[] | null = null
  private value!: T

  /** The value kept; made anew when one of `from` is another than last time. */
  get(from: readonly unknown[], make: () => T): T {
    if (!this.from || from.length !== this.from.length || from.some((part, i) => part !== this.from![i])) {
      this.value = make()
      this.from = from
    }
    return this.value
  }
}
