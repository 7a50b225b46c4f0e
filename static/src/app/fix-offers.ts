// What the report holds for "Try a fix": its remedies, and what grows with the batch (templates/body.html.j2).

import { allocatedCurve } from '../data/device'
import type { DeviceData } from '../data/model'
import { evaluateQuery } from '../search/matches'
import type { State } from '../ui/state'
import type { Scene } from '../views/shared/scene'
import type { ChangeQuestion } from '../whatif/job'
import { type BatchGrowth, doubtful, peakOf, type Remedy, requestsLeft, sizesAt, sizesLeft } from '../whatif/remedies'

/** Options of the state: rules of the remedies and settings that are on, a query, times the recorded batch, a card. */
export const [ON, SETTINGS, WITHOUT, BATCH, CARD] = ['fix.on', 'fix.settings', 'fix.without', 'fix.batch', 'fix.card']

/** Sizes (null: as recorded), and failed requests. */
export type Left = Pick<ChangeQuestion, 'size' | 'requests'>

export interface Offer {
  rule: string
  device: number
  query: string
  fraction: number
  isProportional: boolean
  failedEvents: ReadonlySet<number>
  countedEvents: ReadonlySet<number>
  element: HTMLElement
}

export class FixOffers {
  readonly list = offersOf()
  private readonly growth = growthOf()

  of(device: number): Offer[] {
    return this.list.filter((offer) => offer.device === device)
  }

  /** Whether anything is known to grow with the batch. */
  hasBatch(device: number): boolean {
    return this.growth.has(device)
  }

  /** Null where nothing is known to grow with the batch. */
  growthIn({ data, stacks, info }: Scene): BatchGrowth | null {
    const queries = this.growth.get(info.index)
    if (!queries) return null
    const [growing, unsure] = queries.map((query) => evaluateQuery(data!, stacks!, info, query).mask)
    return { growing, unsure }
  }

  /** Those that are on, and the query of `WITHOUT`. Throws for a query with a mistake. */
  remedies(options: State['options'], { data, stacks, info }: Scene): Remedy[] {
    const on = (options[ON] ?? '').split(',')
    const chosen = this.of(info.index).filter((offer) => on.includes(offer.rule))
    const maskOf = (query: string): Uint8Array => evaluateQuery(data!, stacks!, info, query).mask
    const remedies: Remedy[] = chosen.map((offer) => ({ ...offer, mask: maskOf(offer.query) }))
    const without = options[WITHOUT]
    if (without)
      remedies.push({ mask: maskOf(without), fraction: 1, isProportional: false, failedEvents: new Set<number>() })
    return remedies
  }

  /** What remedies leave of allocations (null: all of each) and of failed requests. */
  left({ data, info }: Scene, remedies: readonly Remedy[]): Left {
    const counted = this.of(info.index)[0]?.countedEvents ?? new Set<number>()
    const size = remedies.length ? sizesLeft(data!.size, remedies) : null
    return { size, requests: requestsLeft(info.ooms, counted, remedies) }
  }
}

/** At another batch. */
export function atBatch(
  data: DeviceData,
  { size, requests }: Left,
  factor: number,
  growth: BatchGrowth | null,
  isLeast: boolean,
): Left {
  if (!growth || factor === 1) return { size, requests }
  const times = doubtful(factor, isLeast)
  return {
    size: sizesAt(size ?? data.size, factor, growth, isLeast),
    requests: new Map([...requests].map(([event, bytes]) => [event, Math.round(bytes * times)])),
  }
}

export function peakWith(data: DeviceData, size: Float64Array | null, requests: ReadonlyMap<number, number>): number {
  return peakOf(size ? allocatedCurve(data.start, data.end, size, data.P) : data.allocated, requests)
}

/** Device → the queries of what grows with the batch, and of what may. */
function growthOf(): Map<number, [string, string]> {
  const items = [...document.querySelectorAll<HTMLElement>('#growth > li')]
  return new Map(
    items.map(({ dataset: { device, growing, unsure } }) => [Number(device), [growing ?? '', unsure ?? '']]),
  )
}

function offersOf(): Offer[] {
  const numbers = (text = ''): Set<number> => new Set(text.split(' ').filter(Boolean).map(Number))
  return [...document.querySelectorAll<HTMLElement>('#remedies > li')].map((element) => {
    const { rule = '', device, query = '', fraction, proportional, failed, counted } = element.dataset
    return {
      rule,
      device: Number(device),
      query,
      fraction: Number(fraction),
      isProportional: proportional !== undefined,
      failedEvents: numbers(failed),
      countedEvents: numbers(counted),
      element,
    }
  })
}
