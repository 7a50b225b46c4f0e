// Addresses as numbers that can be subtracted: 64-bit addresses do not fit a double, their distances do.

import type { DeviceData } from '../data/model'
import { formatAddress } from '../layout/format'

const WORD = 2 ** 32

/** Numbers counted from `high` * 2**32: exact while all addresses of a device lie within 2**53 bytes, as those of a process do. */
export class AddressSpace {
  constructor(readonly high: number) {}

  of(hi: number, lo: number): number {
    return (hi - this.high) * WORD + lo
  }

  /** The number of an address as `text` writes it; null for anything else. */
  read(text: string): number | null {
    if (!/^0x[0-9a-f]{1,16}$/.test(text)) return null
    const parsed = BigInt(text)
    return this.of(Number(parsed >> 32n), Number(parsed & 0xffffffffn))
  }

  text(address: number): string {
    return formatAddress(this.high + Math.floor(address / WORD), address - Math.floor(address / WORD) * WORD)
  }
}

/** The space of a device's allocations and segments. */
export function addressSpaceOf({
  N,
  addrHi,
  segments,
  other,
}: Pick<DeviceData, 'N' | 'addrHi' | 'segments' | 'other'>): AddressSpace {
  let high = Infinity
  for (let id = 0; id < N; id++) if (addrHi[id] < high) high = addrHi[id]
  for (const hi of segments.addrHi) if (hi < high) high = hi
  for (const hi of other.addrHi) if (hi < high) high = hi
  return new AddressSpace(Number.isFinite(high) ? high : 0)
}
