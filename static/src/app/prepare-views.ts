// How much of the other views is prepared before the reader switches to one, by the number of events.

import type { Stage } from './stage'

/**
 * The allocator's state of a device of up to so many events is computed while the first picture is drawn, so that a switch
 * finds it ready. In a larger one that would delay tiles, and take memory (24 bytes an event, 33 an allocation) that many
 * readers never need.
 */
export const REPLAYED_EARLY_EVENTS = 1 << 18
/** The views of a device of up to so many events are rehearsed before the page is ready; each keeps the page busy for some 50 ms. */
const REHEARSED_EVENTS = 1 << 16
/**
 * Those of a larger one afterwards, while the reader rests. On 920,183 events the allocator's replay takes the worker
 * 0.2 s and a step the page up to 60 ms; of more than this they take longer than a reader should ever wait for a frame.
 */
const REHEARSED_AT_REST_EVENTS = 1 << 21

/** Settles when nothing more has to be done before the page is ready. */
export async function prepareViews(stage: Stage, events: number): Promise<void> {
  await stage.load()
  if (events <= REHEARSED_EVENTS) await stage.rehearse(false)
  else if (events <= REHEARSED_AT_REST_EVENTS) stage.rehearse(true).catch(() => {}) // whoever switches sees the error
}
