// Blob name → decoded blob, each decoded once, from the texts that lie in the page.

import { decodeBase85 } from './base85'
import { brotli, brotliNow } from './brotli'
import { DecodedBlob } from './columns'
import { remembered } from './remembered'

export class BlobStore {
  private readonly decoded = new Map<string, DecodedBlob>()
  private readonly pending = new Map<string, Promise<DecodedBlob>>()

  /** `text` gives the base 85 text of a blob; undefined when there is none of that name. */
  constructor(private readonly text: (name: string) => string | undefined) {}

  /** Decodes synchronously, on this thread. */
  now(name: string): DecodedBlob {
    return remembered(this.decoded, name, () => new DecodedBlob(brotliNow(this.bytes(name))))
  }

  /** The same by the browser's own decoder, where it has one. */
  async get(name: string): Promise<DecodedBlob> {
    const ready = this.decoded.get(name)
    if (ready) return ready
    return remembered(this.pending, name, async () => {
      const decoded = await brotli(this.bytes(name))
      this.pending.delete(name)
      return remembered(this.decoded, name, () => new DecodedBlob(decoded))
    })
  }

  /** The text in a blob that holds code. */
  async code(name: string): Promise<string> {
    return new TextDecoder().decode(await brotli(this.bytes(name)))
  }

  /** Whether a blob is there and has the bytes that were written. */
  isIntact(name: string): boolean {
    try {
      if (!this.decoded.has(name) && !this.pending.has(name)) this.bytes(name)
      return true
    } catch {
      return false
    }
  }

  /** Drops the bytes of a blob that will not be needed again. */
  release(name: string): void {
    this.decoded.delete(name)
  }

  private bytes(name: string): Uint8Array {
    const text = this.text(name)
    if (text === undefined) throw new Error(`the part “${name}” of this file is missing`)
    try {
      return decodeBase85(text)
    } catch {
      throw new Error(`the part “${name}” of this file is damaged`)
    }
  }
}
