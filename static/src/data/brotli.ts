// Brotli bytes → bytes, synchronously, in a worker made from a blob and on the main thread alike.
//
// Browsers know brotli as a content encoding, but `new DecompressionStream('brotli')` is still refused by most of them;
// where it exists, it is used (bytes → native code, off the heap). Otherwise a decoder from npm. The candidates, minified by
// esbuild, with the time for column data (varints and byte planes, quality 9) of 0.95 MB and 9.6 MB on one machine
// (first call / best of five; `node bench/brotli.mjs` repeats this):
//
//   package                   bundled    0.95 MB         9.6 MB         start
//   brotli 2.0.0              89 KiB     55 / 5 ms       36 / 34 ms     synchronous
//   brotli-compress 2.2.2/js  152 KiB    27 / 25 ms      94 / 69 ms     synchronous
//   brotli-dec-wasm 2.3.2     279 KiB    14 / 2 ms       61 / 15 ms     3 ms; needs 'wasm-unsafe-eval'
//   tiny-brotli-dec-wasm 1.0  225 KiB    not run: it loads its WebAssembly by address, asynchronously
//
// An empty report has 350 KB for everything, so the WebAssembly ones would leave nothing for the page, and 20 ms at ten
// megabytes buy little. `brotli` is the smallest by far, the fastest in plain JavaScript, and has no start of its own,
// which lets window.snapreport answer synchronously. Loading it unpacks the format's static dictionary (20 ms warm, 60 to
// 100 ms in a page that just opened), so that it is loaded by whoever first decodes: the worker, as a rule, not the page.

type Decompress = (data: Uint8Array) => Uint8Array

let decoder: Decompress | undefined

let native: boolean | undefined

/** Whether the browser itself decodes brotli streams. */
export function hasNativeBrotli(): boolean {
  if (native === undefined) {
    try {
      // Not in TypeScript's DOM types yet.
      new DecompressionStream('brotli' as CompressionFormat)
      native = true
    } catch {
      native = false
    }
  }
  return native
}

/** Decodes synchronously, on this thread. Throws on damaged data. */
export function brotliNow(data: Uint8Array): Uint8Array {
  decoder ??= (require('brotli/decompress') as { decompress: Decompress }).decompress
  return decoder(data)
}

/** Decode, by the browser's own code where it has it. */
export async function brotli(data: Uint8Array): Promise<Uint8Array> {
  if (!hasNativeBrotli()) return brotliNow(data)
  const stream = new Blob([data as BlobPart])
    .stream()
    .pipeThrough(new DecompressionStream('brotli' as CompressionFormat))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}
