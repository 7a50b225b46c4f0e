// Bundles every *.test.ts with esbuild and hands the results to node's own test runner; with names, those alone: `node test/run.mjs flame`.
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const here = dirname(fileURLToPath(import.meta.url))
const cache = join(here, '../node_modules/.cache')
mkdirSync(cache, { recursive: true })
// Of this run alone: two checkouts may share node_modules.
const outdir = mkdtempSync(join(cache, 'tests-'))
const wanted = process.argv.slice(2)
const entryPoints = readdirSync(here)
  .filter((name) => name.endsWith('.test.ts'))
  .filter((name) => wanted.length === 0 || wanted.includes(name.replace('.test.ts', '')))
  .map((name) => join(here, name))
await build({
  entryPoints,
  outdir,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  outExtension: { '.js': '.mjs' },
  sourcemap: 'inline',
  logLevel: 'warning',
})
const files = entryPoints.map((name) => join(outdir, name.split(/[\\/]/).pop().replace(/\.ts$/, '.mjs')))
const { status } = spawnSync(process.execPath, ['--enable-source-maps', '--test', ...files], { stdio: 'inherit' })
rmSync(outdir, { recursive: true, force: true })
process.exit(status ?? 1)
