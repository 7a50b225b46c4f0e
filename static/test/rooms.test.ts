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
