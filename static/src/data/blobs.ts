// Blob name → decoded blob, each decoded once, from the texts that lie in the page.

import { gunzipSync, strFromU8 } from 'fflate'
import { decodeBase85, decodeBlobText } from './base85'
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
      const { bytes, skip } = this.bytes(name)
      blob = new DecodedBlob(brotliNow(bytes).subarray(skip))
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
      const { bytes, skip } = this.bytes(name)
      pending = brotli(bytes).then((decoded) => {
        const blob = this.decoded.get(name) ?? new DecodedBlob(decoded.subarray(skip))
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
    return strFromU8(gunzipSync(decodeBase85(this.textOf(name))))
  }

  /** Forget the bytes of a blob that will not be asked for again. */
  release(name: string): void {
    this.decoded.delete(name)
  }

  /** The brotli stream of a blob, and how many decoded bytes to drop from its front. */
  private bytes(name: string): { bytes: Uint8Array; skip: number } {
    const { bytes, primed } = decodeBlobText(this.textOf(name))
    if (!primed) return { bytes, skip: 0 }
    // A small blob continues a brotli stream that the report holds once, and that begins with text such blobs share:
    // "prime" is the length of that text (u32le), then the stream's first bytes.
    const prime = decodeBlobText(this.textOf('prime')).bytes
    const stream = new Uint8Array(prime.length - 4 + bytes.length)
    stream.set(prime.subarray(4))
    stream.set(bytes, prime.length - 4)
    return { bytes: stream, skip: new DataView(prime.buffer, prime.byteOffset).getUint32(0, true) }
  }

  private textOf(name: string): string {
    const text = this.text(name)
    if (text === undefined) throw new Error(`the report holds no blob ${name}`)
    return text
  }
}
