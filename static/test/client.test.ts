import assert from 'node:assert/strict'
import { test } from 'node:test'
import { installApi, type PublicApi } from '../src/api'
import type { Controller, ViewPatch } from '../src/controller'
import { openClient } from '../src/worker/client'
import type { DataClient } from '../src/worker/data-client'
import type { DeviceData, TileKey } from '../src/data/model'
import { eventGrid } from '../src/layout/grid'
import { offsetOf } from '../src/layout/pick'
import { layOutTile } from '../src/layout/tile'
import { replayOf } from './allocator-trace'
import { reportOf } from './report'
import { randomDevice, tileSource, trainingDevice } from './trace'

const device = randomDevice(
  { events: 2600, older: 30, stacks: 7, alloc: 0.5, size: (r) => Math.ceil(r() ** 9 * 1e9), times: true },
  11,
)

/** Without a script no worker can be made: everything runs here. */
function open(): Promise<DataClient> {
  const blobs = reportOf(device)
  return openClient({ names: () => Object.keys(blobs), text: (name) => blobs[name] }, '')
}

const columnsOf = ({ info: _, ...columns }: DeviceData) => columns
const key: TileKey = { device: 0, axis: 'event', level: 0, tile: 0, yLevel: 0, yTile: 0 }

test('a device comes back as it was, both ways', async () => {
  const client = await open()
  assert.equal(client.devices[0].device, 3)
  const now = client.deviceNow(0)
  assert.equal(await client.device(0), now)
  const later = await (await open()).device(0)
  assert.deepEqual(columnsOf(later), columnsOf(now))
  for (const name of [
    'size',
    'start',
    'end',
    'allocEvent',
    'freeEvent',
    'freeRequestedEvent',
    'stack',
    'category',
    'addrLo',
    'allocated',
  ] as const) {
    assert.deepEqual(now[name], device[name], name)
  }
  assert.deepEqual(now.timeUs, Uint32Array.from(device.timeUs!))
  assert.deepEqual([...now.reserved.subarray(0, 4)], [4096, 4608, 4608, 4608])
  assert.deepEqual([...now.other.free], [NaN, 4])
  assert.throws(() => client.deviceNow(1), RangeError)
})

test('tiles are those of the device, whichever is asked for first', async () => {
  const expected = layOutTile(tileSource(device), key)
  const client = await open()
  assert.deepEqual(await client.tile(key), expected)
  await client.device(0)
  assert.deepEqual(await client.tile(key), expected)
  const exact = { ...key, level: eventGrid(device.info).depth, tile: 1, yLevel: 2, yTile: 1 }
  assert.deepEqual(await client.tile(exact), layOutTile(tileSource(device), exact))
  await assert.rejects(client.tile({ ...key, device: 4 }))
})

test('the times of a large device are read when first looked at', async () => {
  const large = trainingDevice(270_000, 20, 5)
  const blobs = reportOf(large)
  const texts = { names: () => Object.keys(blobs), text: (name: string) => blobs[name] }
  const client = await openClient(texts, '')
  const d = await client.device(0)
  const told = new Promise<number>((resolve) => (client.onTimes = resolve))
  assert.equal(d.timeUs, null)
  assert.equal(await told, 0)
  assert.deepEqual(d.timeUs, Uint32Array.from(large.timeUs!))
  assert.equal(d.clockUs, d.timeUs)
  const timed: TileKey = { ...key, axis: 'time' }
  assert.deepEqual(await client.tile(timed), layOutTile(tileSource(large), timed))
  // A tile of the time axis alone needs them too, and whoever must answer at once reads them here.
  const other = await openClient(texts, '')
  assert.deepEqual(await other.tile(timed), await client.tile(timed))
  assert.deepEqual(other.deviceNow(0).timeUs, d.timeUs)
  await other.times(0)
  // Damaged times are told, to whoever waits for them and to the page.
  blobs['d0.times'] = blobs['d0.times'].slice(0, 40) + '<' + blobs['d0.times'].slice(41)
  const damaged = await openClient(texts, '')
  const error = new Promise<unknown>((resolve) => (damaged.onTimes = (_, reason) => resolve(reason)))
  await assert.rejects(damaged.times(0), /damaged/)
  assert.match(String(await error), /damaged/)
  assert.equal((await damaged.device(0)).timeUs, null)
})

test('a replay comes back as it is worked out here, whether the page or a tile asked for the device first', async () => {
  const client = await open()
  const expected = replayOf(await client.device(0), client.manifest.snapshots[0]?.settings)
  assert.deepEqual(await client.replay(0), expected)
  assert.ok(expected.address.length > 0 && expected.bornAt.some((id) => id >= 0))
  const other = await open()
  other.deviceNow(0)
  assert.deepEqual({ ...(await other.replay(0)), data: null }, { ...expected, data: null })
})

test('the latest tile is served first, and a cancelled one not at all', async () => {
  const client = await open()
  await client.device(0)
  const order: number[] = []
  const ask = (level: number) => client.tile({ ...key, level }).then(() => order.push(level))
  const all = [ask(0), ask(1), ask(2)]
  const cancelled = client.tile({ ...key, yLevel: 1 })
  client.cancel({ ...key, yLevel: 1 })
  await assert.rejects(cancelled, { name: 'TileCancelled' })
  await Promise.all(all)
  assert.deepEqual(order, [2, 1, 0])
})

test('a damaged report says so', async () => {
  const blobs = reportOf(device)
  const texts = { names: () => Object.keys(blobs), text: (name: string) => blobs[name] }
  blobs.main = blobs.main.slice(0, 40) + '<' + blobs.main.slice(41)
  await assert.rejects(openClient(texts, ''), /damaged/)
})

function fakeController(): Controller & { patches: ViewPatch[] } {
  const patches: ViewPatch[] = []
  return {
    patches,
    setView: async (patch) => void patches.push(patch),
    getView: () => ({
      device: 0,
      view: 'timeline',
      x: [0, 1],
      y: [0, 1],
      axis: 'event',
      select: null,
      oom: null,
      stack: null,
      query: '',
      at: null,
      colour: 'stack',
      options: {},
      second: null,
    }),
    drawn: () => ({ level: 0, triangles: 2, exact: true, tiles: 1, pending: 0 }),
    ready: Promise.resolve(),
    testContextLoss: () => {},
    debugView: () => null,
  }
}

test('window.snapreport answers exactly and refuses what is wrong', async () => {
  const target: { snapreport?: PublicApi } = {}
  const controller = fakeController()
  const api = installApi(
    target,
    open().then((client) => ({ client, controller })),
  )
  assert.equal(target.snapreport, api)
  assert.throws(() => api.devices(), /still opening/)
  await api.ready
  assert.deepEqual(api.devices(), [3])
  assert.equal(api.getView().device, 3)
  const s = device.info.peak_event + 1
  for (let id = 0; id < device.N; id += 97) {
    const offset = offsetOf(device, id, s)
    if (Number.isNaN(offset) || device.size[id] === 0) continue
    assert.equal(api.pick(3, s - 1, offset)!.id, id)
    assert.deepEqual(api.pick(3, s - 1, offset + device.size[id] - 1), api.allocation(3, id))
  }
  assert.equal(api.pick(3, s - 1, device.allocated[s]), null)
  assert.throws(() => api.pick(3, device.n, 0), RangeError)
  assert.throws(() => api.pick(0, 0, 0), /no device 0; there are 3/)
  assert.equal(api.allocation(3, device.N), null)
  const first = api.allocation(3, 40)!
  assert.equal(first.alloc_us, device.info.time0! + device.timeUs![device.allocEvent[40]])
  assert.equal(first.origin, 'traced')
  assert.equal(api.allocation(3, 0)!.origin, 'ghost')
  assert.equal(api.allocation(3, 0)!.alloc_us, null)
  assert.deepEqual(api.frames(3, 2), [{ filename: '</script><b>.py', line: 1, name: 'f2' }])
  assert.deepEqual(api.stats(3).top_stacks_at_peak[0].frames, [{ filename: '</script><b>.py', line: 0, name: 'f1' }])
  await api.setView({ device: 3, x: [5, 5], select: -1 })
  assert.deepEqual(controller.patches, [{ device: 0, x: [5, 6], select: null }])
  for (const bad of [
    { device: 9 },
    { x: [3, 1] },
    { y: ['a', 2] },
    { color: 1 },
    { axis: 'z' },
    { device: 3, select: 1e9 },
    { query: 'size>' },
    { query: 1 },
  ]) {
    await assert.rejects(api.setView(bad as never), JSON.stringify(bad))
  }
  const large = await api.search(3, 'size>1KiB')
  const want = Array.from({ length: device.N }, (_, id) => id).filter((id) => device.size[id] > 1024)
  assert.deepEqual(large, { count: want.length, bytes: want.reduce((sum, id) => sum + device.size[id], 0), ids: want })
  await assert.rejects(api.search(3, 'a size>x'), /character 8/)
  await assert.rejects(api.search(0, 'a'), /no device 0/)
})
