// Bundles the page: src/main.ts → dist/app.js (one classic script that is also its own worker), src/app.css → dist/app.css.
// Both end up inline in every report, so they are minified and free of source maps.
// `node build.mjs [folder]` writes into another folder; the wheel's build hook uses that.
import { existsSync, mkdirSync, statSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
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

await build({ ...common, entryPoints: ['src/main.ts'], format: 'iife', outfile: join(outdir, 'app.js') })
if (existsSync(join(here, 'src/app.css'))) {
  await build({ ...common, entryPoints: ['src/app.css'], outfile: join(outdir, 'app.css') })
}
for (const name of ['app.js', 'app.css']) {
  const file = join(outdir, name)
  if (existsSync(file)) console.log(`${name} ${(statSync(file).size / 1024).toFixed(1)} KiB`)
}
