// Bundles layout.bench.ts and runs it.
import { spawnSync } from 'node:child_process'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const here = dirname(fileURLToPath(import.meta.url))
const outfile = join(here, '../node_modules/.cache/layout-bench.mjs')
await build({ entryPoints: [join(here, 'layout.bench.ts')], outfile, bundle: true, platform: 'node', format: 'esm' })
process.exit(spawnSync(process.execPath, [outfile, ...process.argv.slice(2)], { stdio: 'inherit' }).status ?? 1)
