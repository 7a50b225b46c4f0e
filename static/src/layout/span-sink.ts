// What takes the spans of a layout: a collector of arrays, or the mesher that turns them into rectangles at once.

/** Takes spans in stacking order. */
export interface SpanSink {
  add(first: number, length: number, rep: number, stack: number, members: number, bytes: number): void
  /** No more spans are needed. */
  readonly full: boolean
}
