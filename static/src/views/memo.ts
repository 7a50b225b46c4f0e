// The last computed value, as long as its inputs are the same.

export class Memo<T> {
  private from: readonly unknown[] | null = null
  private value!: T

  /** The cached value; computed again when one of `from` differs from the last call. */
  get(from: readonly unknown[], make: () => T): T {
    if (!this.from || from.length !== this.from.length || from.some((part, i) => part !== this.from![i])) {
      this.value = make()
      this.from = from
    }
    return this.value
  }
}
