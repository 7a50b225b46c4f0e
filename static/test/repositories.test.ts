import assert from 'node:assert/strict'
import { test } from 'node:test'
import { lineAddress } from '../src/data/repositories'

const URL = 'https://github.com/team/project/blob/0123'

test('a line of the working tree has an address', () => {
  const address = lineAddress([{ root: '/code', url: URL }])
  assert.equal(address('/code/models/vit.py', 12), `${URL}/models/vit.py#L12`)
  assert.equal(address('/code/a b/#1?.py', 3), `${URL}/a%20b/%231%3F.py#L3`)
})

test('other files have none', () => {
  const address = lineAddress([{ root: '/code', url: URL }])
  for (const file of ['/codec/x.py', '/usr/lib/x.py', '/code/../etc/passwd', '/code//x.py', '/code', '??']) {
    assert.equal(address(file, 1), null, file)
  }
  assert.equal(address('/code/.venv/lib/site-packages/torch/nn.py', 1), null)
  assert.equal(address('/code/x.py', 0), null)
})

test('the inner of two working trees is meant, and only https is linked', () => {
  const inner = 'https://github.com/team/library/blob/4567'
  const address = lineAddress([
    { root: '/code', url: URL },
    { root: '/code/library', url: inner },
  ])
  assert.equal(address('/code/library/x.py', 1), `${inner}/x.py#L1`)
  assert.equal(lineAddress([{ root: '/code', url: 'javascript:alert(1)//' }])('/code/x.py', 1), null)
})
