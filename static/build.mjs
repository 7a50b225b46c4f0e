// Bundles the page: src/boot/boot.ts → dist/boot.js, src/main.ts → dist/app.js.gz (one classic script that is also its own worker),
// src/views-bundle.ts → dist/views.js.br, src/app.css → dist/app.css, and for jobs src/job-bundle.ts → dist/job.js.br and src/css/job.css → dist/job.css.
// All end up inside reports, so they are minified and free of source maps.
// `node build.mjs [folder]` writes into another folder; the wheel's build hook uses that.
import { existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import { build } from 'esbuild'

const here = dirname(fileURLToPath(import.meta.url))
const outdir = resolve(process.argv[2] ?? join(here, 'dist'))
mkdirSync(outdir, { recursive: true })

const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: ['es2020', 'chrome100', 'firefox100', 'safari15.4'],
  legalComments: 'eof',
  charset: 'ascii', // the file may be served as Latin-1
  logLevel: 'warning',
}

const smallest = (contents) =>
  brotliCompressSync(contents, {
    params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: contents.length },
  })

const main = await build({ ...common, entryPoints: ['src/main.ts'], format: 'iife', write: false })
// gzip, since what unpacks that is small and starts at once: brotli's decoder, which lies in here, takes 30 ms for 60 KB when cold.
writeFileSync(join(outdir, 'app.js.gz'), gzipSync(main.outputFiles[0].contents, { level: 9 }))
await build({ ...common, entryPoints: ['src/boot/boot.ts'], format: 'iife', outfile: join(outdir, 'boot.js') })
// The other views' bundle need not run before the first picture: it is unpacked by what the application unpacks columns with.
const views = await build({ ...common, entryPoints: ['src/views-bundle.ts'], format: 'iife', write: false })
writeFileSync(join(outdir, 'views.js.br'), smallest(views.outputFiles[0].contents))
// Only reports of whole jobs hold this one, and its style sheet.
const job = await build({ ...common, entryPoints: ['src/job-bundle.ts'], format: 'iife', write: false })
writeFileSync(join(outdir, 'job.js.br'), smallest(job.outputFiles[0].contents))
await build({ ...common, entryPoints: ['src/css/job.css'], outfile: join(outdir, 'job.css') })
if (existsSync(join(here, 'src/app.css'))) {
  await build({ ...common, entryPoints: ['src/app.css'], outfile: join(outdir, 'app.css') })
}
for (const name of ['boot.js', 'app.js.gz', 'views.js.br', 'job.js.br', 'app.css', 'job.css']) {
  const file = join(outdir, name)
  if (existsSync(file)) console.log(`${name} ${(statSync(file).size / 1024).toFixed(1)} KiB`)
}
