import assert from 'node:assert/strict'
import { test } from 'node:test'
import { lineAddress } from '../src/data/source-links'

const BLOB = 'https://github.com/team/project/blob/0123'
const CODE = { root: '/code', url: `${BLOB}/{path}#L{line}`, absolute: false }
const EDITOR = { root: '', url: 'vscode://file/{path}:{line}', absolute: true }

test('a line inside a root has an address, whoever wrote it', () => {
  const address = lineAddress([CODE])
  assert.equal(address('/code/models/vit.py', 12, true), `${BLOB}/models/vit.py#L12`)
  assert.equal(address('/code/torch/nn.py', 12, false), `${BLOB}/torch/nn.py#L12`)
  assert.equal(address("/code/a b/#1?(it's)!*.py", 3, true), `${BLOB}/a%20b/%231%3F%28it%27s%29%21%2A.py#L3`)
})

test('other files have none', () => {
  const address = lineAddress([CODE])
  for (const file of [
    '/codec/x.py',
    '/usr/lib/x.py',
    '/code/../etc/passwd',
    '/code//x.py',
    '/code',
    '??',
    '/code/<string>',
  ]) {
    assert.equal(address(file, 1, true), null, file)
  }
  assert.equal(address('/code/.venv/lib/site-packages/torch/nn.py', 1, true), null)
  assert.equal(address('/code/x.py', 0, true), null)
  assert.equal(address('/code/\ud800.py', 1, true), null)
})

test('the inner of two working trees is meant, and nothing that runs a script is linked', () => {
  const inner = 'https://github.com/team/library/blob/4567'
  const address = lineAddress([CODE, { root: '/code/library', url: `${inner}/{path}#L{line}`, absolute: false }])
  assert.equal(address('/code/library/x.py', 1, true), `${inner}/x.py#L1`)
  for (const url of ['javascript:alert(1)//{path}', ' JavaScript:{path}', 'data:text/html,{path}', 'vbscript:{path}']) {
    assert.equal(lineAddress([{ ...CODE, url }])('/code/x.py', 1, true), null, url)
  }
})

test('an editor opens whole paths of own code; a page without a root only relative ones', () => {
  const editor = lineAddress([EDITOR])
  assert.equal(editor('/home/me/train.py', 7, true), 'vscode://file/home/me/train.py:7')
  assert.equal(editor('C:\\me\\train.py', 7, true), 'vscode://file/C:/me/train.py:7')
  assert.equal(editor('/usr/lib/python3.12/x.py', 7, false), null)
  const page = lineAddress([{ ...CODE, root: '' }])
  assert.equal(page('train.py', 7, true), `${BLOB}/train.py#L7`)
  assert.equal(page('/home/me/train.py', 7, true), null)
})

test('a name that looks like a placeholder stands for itself', () => {
  assert.equal(lineAddress([CODE])('/code/{line}.py', 4, true), `${BLOB}/%7Bline%7D.py#L4`)
})
