// Blob name → decoded blob, each decoded once, from the texts that lie in the page.

import { gunzipSync, strFromU8 } from 'fflate'
import { decodeBase85 } from './base85'
import { brotli, brotliNow } from './brotli'
import { DecodedBlob } from './columns'

export class BlobStore {
  private readonly decoded = new Map<string, DecodedBlob>()
  private readonly pending = new Map<string, Promise<DecodedBlob>>()

  /** `text` gives the base 85 text of a blob; undefined when there is none of that name. */
  constructor(private readonly text: (name: string) => string | undefined) {}

  /** Decode at once, on this thread. */
  now(name: string): DecodedBlob {
    let blob = this.decoded.get(name)
    if (!blob) {
      blob = new DecodedBlob(brotliNow(this.bytes(name)))
      this.decoded.set(name, blob)
    }
    return blob
  }

  /** The same by the browser's own decoder, where it has one. */
  async get(name: string): Promise<DecodedBlob> {
    const ready = this.decoded.get(name)
    if (ready) return ready
    let pending = this.pending.get(name)
    if (!pending) {
      pending = brotli(this.bytes(name)).then((decoded) => {
        const blob = this.decoded.get(name) ?? new DecodedBlob(decoded)
        this.decoded.set(name, blob)
        this.pending.delete(name)
        return blob
      })
      this.pending.set(name, pending)
    }
    return pending
  }

  /** The text in a blob that holds code, which is gzipped. */
  code(name: string): string {
    return strFromU8(gunzipSync(this.bytes(name)))
  }

  /** Forget the bytes of a blob that will not be asked for again. */
  release(name: string): void {
    this.decoded.delete(name)
  }

  private bytes(name: string): Uint8Array {
    return decodeBase85(this.textOf(name))
  }

  private textOf(name: string): string {
    const text = this.text(name)
    if (text === undefined) throw new Error(`the report holds no blob ${name}`)
    return text
  }
}
