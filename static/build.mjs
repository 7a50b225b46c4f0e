// Bundles the page: src/boot/boot.ts → dist/boot.js, src/main.ts → dist/app.js.gz (one classic script that is also its own worker),
// src/views-bundle.ts → dist/views.js.br, src/app.css → dist/app.css, and for jobs src/job-bundle.ts → dist/job.js.br and src/css/job.css → dist/job.css.
// All end up inside reports, so they are minified and free of source maps.
// `node build.mjs [folder]` writes into another folder; the wheel's build hook uses that.
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join, normalize, relative, resolve } from 'node:path'
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

/** The sources that a bundle is made of, as paths from here. */
const sourcesOf = async (entry) => {
  const { metafile } = await build({ ...common, entryPoints: [entry], format: 'iife', write: false, metafile: true })
  const [{ inputs }] = Object.values(metafile.outputs)
  return Object.keys(inputs).filter((path) => inputs[path].bytesInOutput > 0)
}

// The other bundles run where the application has run. What they use of its modules is not built again: the application leaves it
// in a list at a property of the window, and they read it there by its place.
const LIST = 'globalThis.snapreportShared'
const ofApp = new Set((await sourcesOf('src/main.ts')).filter((path) => path.startsWith('src/')))
const shared = new Map()
for (const entry of ['src/views-bundle.ts', 'src/job-bundle.ts'])
  for (const path of await sourcesOf(entry)) {
    if (!path.endsWith('.ts') || ofApp.has(path)) continue
    const source = readFileSync(join(here, path), 'utf8')
    for (const [, names, from] of source.matchAll(/^import \{([^}]*)\} from '([^']+)'/gm)) {
      const target = `${normalize(join(dirname(path), from)).replaceAll('\\', '/')}.ts`
      const values = names.split(',').map((name) => name.trim().split(' ')[0])
      if (ofApp.has(target))
        for (const name of values) if (name && name !== 'type') shared.set(`${target} ${name}`, { target, name })
    }
  }
const places = [...shared.values()]
const taken = {
  name: 'taken-from-the-application',
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, ({ path }) => {
      const target = relative(here, path).replaceAll('\\', '/')
      if (!ofApp.has(target)) return null
      const lines = places.map((one, i) => (one.target === target ? `export const ${one.name} = ${LIST}[${i}]` : ''))
      return { contents: lines.join('\n'), loader: 'js' }
    })
  },
}
const imports = places.map(({ target, name }, i) => `import { ${name} as _${i} } from './${target}'`).join('\n')
const list = `${imports}\n${LIST} = [${places.map((_, i) => `_${i}`)}]`
const application = {
  name: 'application',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^shared$/ }, () => ({ path: 'shared', namespace: 'shared' }))
    onLoad({ filter: /./, namespace: 'shared' }, () => ({ contents: list, resolveDir: here, loader: 'js' }))
  },
}
const start = { contents: "import 'shared'\nimport './src/main.ts'", resolveDir: here, loader: 'js' }
const main = await build({ ...common, stdin: start, plugins: [application], format: 'iife', write: false })
// gzip, since what unpacks that is small and starts at once: brotli's decoder, which lies in here, takes 30 ms for 60 KB when cold.
writeFileSync(join(outdir, 'app.js.gz'), gzipSync(main.outputFiles[0].contents, { level: 9 }))
await build({ ...common, entryPoints: ['src/boot/boot.ts'], format: 'iife', outfile: join(outdir, 'boot.js') })
const beside = async (entry) =>
  (await build({ ...common, entryPoints: [entry], plugins: [taken], format: 'iife', write: false })).outputFiles[0]
    .contents
// The other views' bundle need not run before the first picture: it is unpacked by what the application unpacks columns with.
writeFileSync(join(outdir, 'views.js.br'), smallest(await beside('src/views-bundle.ts')))
// Only reports of whole jobs hold this one, and its style sheet.
writeFileSync(join(outdir, 'job.js.br'), smallest(await beside('src/job-bundle.ts')))
await build({ ...common, entryPoints: ['src/css/job.css'], outfile: join(outdir, 'job.css') })
if (existsSync(join(here, 'src/app.css'))) {
  await build({ ...common, entryPoints: ['src/app.css'], outfile: join(outdir, 'app.css') })
}
for (const name of ['boot.js', 'app.js.gz', 'views.js.br', 'job.js.br', 'app.css', 'job.css']) {
  const file = join(outdir, name)
  if (existsSync(file)) console.log(`${name} ${(statSync(file).size / 1024).toFixed(1)} KiB`)
}
