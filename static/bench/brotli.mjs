// Compares brotli decoders from npm by bundled size and speed on column data. The candidates are no dependencies:
//   npm install --no-save brotli-compress brotli-dec-wasm && node bench/brotli.mjs
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants } from 'node:zlib'
import { build } from 'esbuild'

const candidates = {
  brotli: `import { decompress } from 'brotli/decompress'; globalThis.open = async () => decompress`,
  'brotli-compress/js': `import { decompress } from 'brotli-compress/js'; globalThis.open = async () => decompress`,
  'brotli-dec-wasm': `import wasm from './node_modules/brotli-dec-wasm/pkg/brotli_dec_wasm_bg.wasm'
    import { decompress, initSync } from 'brotli-dec-wasm/web'
    globalThis.open = async () => (initSync({ module: wasm }), decompress)`,
}

/** Like the columns of a training trace: a step that repeats itself, with a little noise. */
function columns(count) {
  let seed = 1
  const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648
  const step = Array.from({ length: 4000 }, () => [
    random() * 60,
    random() < 0.7 ? random() * 12 : random() * 20000,
    random() * 2 ** 26,
    random() * 2 ** 20,
  ])
  const bytes = []
  for (const column of [0, 1, 2, 3]) {
    for (let i = 0; i < count; i++) {
      let value = Math.floor(random() < 0.03 ? step[i % 4000][column] * random() : step[i % 4000][column])
      for (; value > 127; value = Math.floor(value / 128)) bytes.push((value & 127) | 128)
      bytes.push(value)
    }
  }
  return Uint8Array.from(bytes)
}

const inputs = [120_000, 1_200_000].map((count) => {
  const plain = columns(count)
  return {
    plain,
    packed: brotliCompressSync(plain, {
      params: { [constants.BROTLI_PARAM_QUALITY]: 9, [constants.BROTLI_PARAM_LGWIN]: 24 },
    }),
  }
})

for (const [name, contents] of Object.entries(candidates)) {
  try {
    const result = await build({
      stdin: { contents, resolveDir: join(dirname(fileURLToPath(import.meta.url)), '..') },
      bundle: true,
      minify: true,
      format: 'iife',
      write: false,
      charset: 'ascii',
      loader: { '.wasm': 'binary' },
      logLevel: 'silent',
    })
    const text = result.outputFiles[0].text
    // biome-ignore lint/security/noGlobalEval: the bundle under test, as a page's script would run it
    ;(0, eval)(text)
    const decode = await globalThis.open()
    const words = inputs.map(({ plain, packed }) => {
      const times = Array.from({ length: 5 }, () => {
        const start = performance.now()
        const out = decode(new Uint8Array(packed))
        if (Buffer.compare(out, plain) !== 0) throw new Error('wrong bytes')
        return performance.now() - start
      })
      return `${(plain.length / 1e6).toFixed(2)} MB: first ${times[0].toFixed(1)}, best ${Math.min(...times).toFixed(1)} ms`
    })
    console.log(name.padEnd(20), `${(text.length / 1024).toFixed(0)} KiB`, ...words)
  } catch (error) {
    console.log(name.padEnd(20), 'not measured:', String(error.message).split('\n')[0])
  }
}
