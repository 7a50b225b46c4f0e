import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decodeBase85 } from '../src/data/base85'
import { brotliNow } from '../src/data/brotli'
import { DecodedBlob, type Dtype } from '../src/data/columns'
import { lifetimes } from '../src/data/device'
import { ascending, complete, setTimes } from '../src/data/on-demand'
import { distinctEnds, readStacks } from '../src/data/stacks'
import { encodeBase85, encodeBlob, encodeText } from './encode'
import { info, random } from './trace'

test('base 85 gives the bytes back, for every length', () => {
  const r = random(1)
  for (let length = 0; length < 70; length++) {
    const bytes = Uint8Array.from({ length }, () => Math.floor(r() * 256))
    assert.deepEqual(decodeBase85(encodeBase85(bytes)), bytes)
    assert.deepEqual(decodeBase85(`\n${encodeBase85(bytes)}\n`), bytes)
  }
  assert.deepEqual(decodeBase85(encodeBase85(new Uint8Array(8).fill(255))), new Uint8Array(8).fill(255))
})

test('damaged base 85 is refused', () => {
  const text = encodeBase85(Uint8Array.of(1, 2, 3, 4, 5))
  for (const bad of [
    '',
    '8',
    text.slice(0, -1),
    text.slice(0, 12) + '<' + text.slice(13),
    text.slice(0, 12) + 'é' + text.slice(13),
    text.slice(0, 12) + (text[12] === '!' ? '#' : '!') + text.slice(13),
    (text[0] === '0' ? '1' : '0') + text.slice(1),
    '000000000}}}}}',
    '000000001',
  ]) {
    assert.throws(() => decodeBase85(bad), /damaged/, JSON.stringify(bad))
  }
})

const TOP: Record<string, number> = { u8: 2 ** 8, u16: 2 ** 16, u32: 2 ** 32, i32: 2 ** 31, f64: 2 ** 50 }

test('every type, transform and layout comes back', () => {
  const r = random(2)
  for (const dtype of ['u8', 'u16', 'u32', 'i32', 'f64'] as Dtype[]) {
    for (const transform of ['n', 'nz', 'd', 'dz', 'Dz', 'D'] as const) {
      for (const layout of ['v', 'p', 'c', 'u'] as const) {
        if (layout === 'c' && transform[0] !== 'n') continue
        const signed = transform.endsWith('z') && (dtype === 'i32' || dtype === 'f64')
        let values = Array.from(
          { length: 300 },
          () => Math.floor(r() ** 8 * TOP[dtype]) * (signed && r() < 0.5 ? -1 : 1) || 0,
        )
        // Unsigned deltas need ascending (and convex) values.
        if (transform === 'd' || transform === 'D') values = Array.from({ length: 14 }, (_, i) => i * i)
        if (layout === 'c') values.fill(values[7])
        const blob = new DecodedBlob(
          encodeBlob([
            { name: 'before', dtype: 'u8', values: [1] },
            { name: 'x', dtype, values, transform, layout },
          ]),
        )
        assert.deepEqual(
          Array.from((blob as never as Record<string, (n: string) => ArrayLike<number>>)[dtype]('x')),
          values,
          `${dtype} ${transform} ${layout}`,
        )
      }
    }
  }
})

test('a blob says what is wrong with it', () => {
  const bytes = encodeBlob([{ name: 'x', dtype: 'u8', values: [1, 2] }])
  assert.throws(() => new DecodedBlob(bytes.subarray(0, bytes.length - 1)))
  const blob = new DecodedBlob(bytes)
  assert.throws(() => blob.u8('y'), /no column y/)
  assert.throws(() => blob.u16('x'), /x is u8/)
})

test('the bundled brotli decoder reads what brotli writes, static dictionary included', () => {
  const text = encodeText(
    [
      {
        name: 's',
        dtype: 'json',
        values: ['the quick brown fox of the United States government', 'snapshot \u2028 </script>'],
      },
    ],
    {},
    11,
  )
  const blob = new DecodedBlob(brotliNow(decodeBase85(text)))
  assert.deepEqual(blob.json('s'), ['the quick brown fox of the United States government', 'snapshot \u2028 </script>'])
})

/** A device of five allocations in ten events, as the file tells it. */
function fewLives() {
  const i = info({ events: 10, allocations: 5, ghosts: 1, freed: 1 })
  return lifetimes(i, Int32Array.of(2, 3, 5), Uint32Array.of(0, 5, 3, 0, 0), Int32Array.of(0, 2, 3, -9, 0))
}

test('lifetimes: pre-existing, never freed, pending free', () => {
  const l = fewLives()
  assert.deepEqual([...l.freeRequestedEvent], [-1, 3, 3, 8, -1])
  assert.deepEqual([...l.start], [0, 0, 3, 4, 6])
  assert.deepEqual([...l.end], [11, 5, 6, 11, 11])
})

test('what follows from other columns is made once, and times are asked for when first looked at', () => {
  let asked = 0
  const d = complete({ ...fewLives(), P: 11 } as never, () => asked++)
  assert.deepEqual([...d.allocEvent], [-1, -1, 2, 3, 5])
  assert.deepEqual([...d.freeEvent], [-1, 4, 5, -1, -1])
  assert.equal(d.freeEvent, d.freeEvent)
  assert.equal(asked, 0)
  assert.equal(d.timeUs, null)
  assert.equal(d.clockUs, null)
  assert.equal(asked, 2)
  const sorted = Float64Array.of(0, 1)
  setTimes(d, sorted)
  assert.equal(d.timeUs, sorted)
  assert.equal(d.clockUs, sorted)
  setTimes(d, Float64Array.of(3, 1))
  assert.deepEqual([...d.clockUs!], [3, 3])
  assert.equal(asked, 2)
})

test('times that go back are held', () => {
  const sorted = Float64Array.of(0, 1, 1, 4)
  assert.equal(ascending(sorted), sorted)
  assert.deepEqual([...ascending(Float64Array.of(0, 5, 3, NaN, 9))], [0, 5, 5, 5, 9])
})

test('stacks come out of front coding innermost first', () => {
  // outermost first: [] [a] [a b] [a b c] [a d] [d]
  const blob = new DecodedBlob(
    encodeBlob([
      { name: 'filenames', dtype: 'json', values: ['m.py', '??'] },
      { name: 'names', dtype: 'json', values: ['a', 'b', '_PyEval_EvalFrameDefault', 'd'] },
      { name: 'frame_file', dtype: 'u32', values: [0, 0, 1, 0] },
      { name: 'frame_name', dtype: 'u32', values: [0, 1, 2, 3] },
      { name: 'frame_line', dtype: 'i32', values: [1, 2, 0, 4] },
      { name: 'frame_flags', dtype: 'u8', values: [2, 2, 1, 2] },
      { name: 'operators', dtype: 'json', values: ['', 'linear', 'softmax'] },
      { name: 'frame_operator', dtype: 'u32', values: [1, 0, 2, 0] },
      { name: 'stack_operator', dtype: 'u32', values: [0, 0, 1, 0, 2, 0] },
      { name: 'stack_called', dtype: 'u32', values: [0, 1, 1, 2, 2, 0] },
      { name: 'stack_lcp', dtype: 'u32', values: [0, 0, 1, 2, 1, 0] },
      { name: 'stack_length', dtype: 'u32', values: [0, 1, 2, 3, 2, 1] },
      { name: 'stack_name', dtype: 'u32', values: [0, 1, 1, 2, 1, 1] },
      { name: 'stack_launcher', dtype: 'u32', values: [0, 0, 2, 0, 2, 0] },
      // nodes: a, b, c, d under a, d; lists: a [0], b [1], c [2], d [3, 4]
      { name: 'posting_length', dtype: 'u32', values: [1, 1, 1, 2] },
      { name: 'posting_first', dtype: 'u32', values: [0, 1, 1, 1] },
      { name: 'posting_gap', dtype: 'u32', values: [1] },
      { name: 'frame_fx', dtype: 'json', values: { 3: { fx_node: 'mm' } } },
    ]),
  )
  const stacks = readStacks(blob)
  const names = (s: number) => stacks.frames(s).map((f) => f.name)
  assert.deepEqual([0, 1, 2, 3, 4, 5].map(names), [
    [],
    ['a'],
    ['b', 'a'],
    ['_PyEval_EvalFrameDefault', 'b', 'a'],
    ['d', 'a'],
    ['d'],
  ])
  assert.deepEqual([...stacks.trie.frameOf], [0, 1, 2, 3, 3])
  assert.equal(stacks.top(0), null)
  assert.equal(stacks.top(3)!.name, 'b')
  assert.deepEqual(stacks.top(5)!.fx, { fx_node: 'mm' })
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((s) => stacks.launcher(s)?.name ?? null),
    [null, null, 'a', null, 'a'],
  )
  assert.deepEqual(
    [0, 2, 4].map((s) => stacks.operator(s)),
    ['', 'linear', 'softmax'],
  )
  assert.deepEqual(
    stacks.frames(3).map((f) => f.operator),
    ['softmax', '', ''],
    'of C++ frames alone',
  )
  assert.throws(() => stacks.frames(6), RangeError)
})

test('a file is called by as few last parts of its path as tell it from the others', () => {
  assert.deepEqual(distinctEnds(['/a/b/m.py', '/a/b/n.py', 'C:\\x\\o.py', '']), ['m.py', 'n.py', 'o.py', ''])
  assert.deepEqual(distinctEnds(['/a/b/m.py', '/a/c/m.py', 'm.py']), ['b/m.py', 'c/m.py', 'm.py'])
  assert.deepEqual(distinctEnds(['/x/b/m.py', '/y/b/m.py', 'p.py']), ['x/b/m.py', 'y/b/m.py', 'p.py'])
})
