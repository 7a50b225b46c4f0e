// Files and tickets made in the page: a snapshot's strings stand for themselves there too.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { csvLine } from '../src/ui/download'
import { code, prose, visible } from '../src/ui/markdown'

test('a cell that begins like a formula is text to a spreadsheet', () => {
  for (const text of ['=1+1', '+1', '-1', '@SUM(A1)', '\tx', '\rx', '=HYPERLINK("http://x")', '＝1'])
    assert.ok(/^"?'/.test(csvLine([text])), csvLine([text]))
  // Numbers are numbers, and a sign inside a text is no formula.
  assert.equal(csvLine([-1, -2.5, 'a=1', '0x7f', 'forward x.py:3', null]), '-1,-2.5,a=1,0x7f,forward x.py:3,\r\n')
  assert.equal(csvLine(["=cmd|' /C calc'!A0\""]), '"\'=cmd|\' /C calc\'!A0"""\r\n')
})

test('Markdown shows what is there', () => {
  assert.equal(prose('a & <b> `c` *d* #1 @e'), 'a \\& \\<b\\> \\`c\\` \\*d\\* \\#1 \\@e')
  assert.equal(prose('see https://evil.example/?a|b, www.x.y'), 'see `https://evil.example/?a\\|b,` `www.x.y`')
  assert.equal(code('a|b'), '`a\\|b`')
  assert.equal(code('a\\|b'), '`a\\x7cb`')
  assert.equal(code('a`b'), '`a b`')
  assert.equal(visible('a\x1b[2J\u202e\u200b\n\u2028\u{e0041}'), 'a\\x1b[2J\\u202e\\u200b \\u{e0041}')
})
