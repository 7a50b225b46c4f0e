import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { test } from 'node:test'

const VIEWS = join(process.cwd(), 'src/views')

/** Folders under views that several views share. */
const SHARED = ['shared', 'colours']

test('no view imports another, and what they share imports none of them', () => {
  const rooms = readdirSync(VIEWS, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
  assert.ok(rooms.length >= 8, 'the folders of the views are found')
  let imports = 0
  for (const room of rooms) {
    for (const name of readdirSync(join(VIEWS, room))) {
      const file = join(VIEWS, room, name)
      for (const [, path] of readFileSync(file, 'utf8').matchAll(/from '(\.[^']+)'/g)) {
        imports++
        const parts = relative(VIEWS, join(dirname(file), path)).split(/[\\/]/)
        const other = parts[0] === '..' || parts.length === 1 ? null : parts[0]
        assert.ok(other === null || other === room || SHARED.includes(other), `${room}/${name} imports ${path}`)
      }
    }
  }
  assert.ok(imports > 200, 'the imports are found')
})

test('layout knows no WebGL and no document', () => {
  const folder = join(process.cwd(), 'src/layout')
  for (const name of readdirSync(folder)) {
    const text = readFileSync(join(folder, name), 'utf8')
    assert.doesNotMatch(text, /from '\.\.\/(gl|ui|views|app|job)\/|\bdocument\.|WebGL/, name)
  }
})

const SOURCE = join(process.cwd(), 'src')

/** Every file of the page with the files that it imports; types count, too. */
function importsOfFiles(): Map<string, string[]> {
  const files = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'))
  return new Map(
    files.map((name) => {
      const file = join(SOURCE, name)
      const paths = [...readFileSync(file, 'utf8').matchAll(/ from '(\.[^']+)'/g)].map(([, path]) => path)
      return [file, paths.filter((path) => !path.endsWith('.json')).map((path) => `${join(dirname(file), path)}.ts`)]
    }),
  )
}

test('no file imports itself over others', () => {
  const imports = importsOfFiles()
  const done = new Set<string>()
  let followed = 0
  const follow = (file: string, way: readonly string[]): void => {
    const names = [...way, file].map((each) => relative(SOURCE, each))
    assert.ok(!way.includes(file), `a circle: ${names.join(' → ')}`)
    if (done.has(file)) return
    for (const imported of imports.get(file) ?? assert.fail(`${names.join(' → ')} does not exist`)) {
      followed++
      follow(imported, [...way, file])
    }
    done.add(file)
  }
  for (const file of imports.keys()) follow(file, [])
  assert.ok(followed > 1000, 'the imports are found')
})

test('imports only go down', () => {
  // Of folders, from the ground up. Files in none of them start the page or are interfaces of the whole.
  const floors = [
    ['data', 'layout', 'gl', 'search', 'flame', 'steps', 'allocator', 'whatif'],
    ['worker'],
    ['ui'],
    ['views'],
    ['app', 'job'],
  ]
  const floorOf = (file: string): number =>
    floors.findIndex((rooms) => rooms.includes(relative(SOURCE, file).split(/[\\/]/)[0]))
  for (const [file, imported] of importsOfFiles()) {
    if (floorOf(file) < 0) continue
    for (const other of imported)
      assert.ok(floorOf(other) <= floorOf(file), `${relative(SOURCE, file)} imports ${relative(SOURCE, other)}`)
  }
})
