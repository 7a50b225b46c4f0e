// What layout hands its spans to: a collector of arrays, or the mesher that makes rectangles of them at once.

/** Takes spans in stacking order. */
export interface SpanSink {
  add(first: number, length: number, rep: number, stack: number, members: number, bytes: number): void
  /** Nothing more is wanted. */
  readonly full: boolean
}
