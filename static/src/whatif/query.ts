// The allocations that a query matches, as the mask of those to leave out.

import { parse } from '../search/grammar'
import { evaluateQuery } from '../search/matches'
import type { DataClient } from '../worker/data-client'

/** 1 per allocation that matches. Rejects with QueryError for a malformed query. */
export async function maskOf(client: DataClient, device: number, query: string): Promise<Uint8Array> {
  parse(query)
  const [data, stacks] = await Promise.all([client.device(device), client.stacks(), client.times(device)])
  return Uint8Array.from(evaluateQuery(data, stacks, client.devices[device], query).mask, Number)
}
