// The worker's work list. Plain bytes come first, which take a moment and which the page needs together with a device; then tiles, the latest first, since that is what the
// reader is looking at. A tile that waits for its device gives way to the job that decodes it. One job at a time, and a
// check for messages between two.

import { BlobStore } from '../data/blobs'
import type { TileKey } from '../data/model'
import type { Check } from '../whatif/check'
import { answerChange, answerMinimum, answerWhatIf } from '../whatif/job'
import type { Trace } from '../whatif/trace'
import { Engine } from './engine'
import {
  type CheckedTrace,
  type FromWorker,
  outgoingDevice,
  outgoingTimes,
  outgoingWhole,
  type RequestKind,
  type Requests,
  type ToWorker,
} from './protocol'

interface Job {
  id: number
  kind: RequestKind
  argument: unknown
}

export class JobList {
  private readonly jobs: Job[] = []
  private running = false
  private current = 0
  private isCancelled = false

  constructor(
    private readonly engine: Engine,
    private readonly send: (message: FromWorker, transfer: ArrayBuffer[]) => void,
  ) {}

  accept(message: ToWorker): void {
    if (message.type === 'keys') this.engine.setKeys(message.keys, message.instead)
    else if (message.type === 'cancel') {
      const at = this.jobs.findIndex((job) => job.id === message.id)
      if (at >= 0) this.jobs.splice(at, 1)
      else if (this.current === message.id) this.isCancelled = true
    } else if (message.type === 'request') {
      this.jobs.push(message)
      if (!this.running) {
        this.running = true
        void this.run()
      }
    }
  }

  private async run(): Promise<void> {
    // A turn of the event loop first, so that requests and cancellations sent in one burst are seen together.
    await turn()
    for (let job = this.take(); job; job = this.take()) {
      this.current = job.id
      this.isCancelled = false
      try {
        const { value, transfer } = await this.perform(job)
        this.send({ type: 'reply', id: job.id, value }, transfer)
      } catch (error) {
        this.send({ type: 'failed', id: job.id, message: error instanceof Error ? error.message : String(error) }, [])
      }
      await turn()
    }
    this.running = false
  }

  private take(): Job | undefined {
    const { engine } = this
    return (
      this.last((job) => job.kind === 'bytes') ??
      this.last((job) => job.kind === 'tile' && engine.isReady(job.argument as TileKey)) ??
      this.first((job) => job.kind !== 'tile') ??
      this.jobs.pop()
    )
  }

  private last(passes: (job: Job) => boolean): Job | undefined {
    for (let i = this.jobs.length - 1; i >= 0; i--) if (passes(this.jobs[i])) return this.jobs.splice(i, 1)[0]
    return undefined
  }

  private first(passes: (job: Job) => boolean): Job | undefined {
    const at = this.jobs.findIndex(passes)
    return at >= 0 ? this.jobs.splice(at, 1)[0] : undefined
  }

  /** Replays in slices, with a check for messages between two: a million events take seconds. */
  private async inSlices<Q>(
    job: Job,
    answer: (trace: Trace, check: Check | null, question: Q) => Generator<number, unknown>,
  ): Promise<{ value: unknown; transfer: ArrayBuffer[] }> {
    const { trace, check, question } = job.argument as CheckedTrace & { question: Q }
    const work = answer(trace, check, question)
    let reported = -1
    for (;;) {
      const step = work.next()
      if (step.done) return { value: step.value, transfer: [] }
      const share = Math.floor(step.value * 200) / 200
      if (share !== reported) this.send({ type: 'progress', id: job.id, share: (reported = share) }, [])
      await turn()
      if (this.isCancelled) throw new Error('cancelled')
    }
  }

  private async perform(job: Job): Promise<{ value: unknown; transfer: ArrayBuffer[] }> {
    switch (job.kind) {
      case 'manifest':
        return { value: await this.engine.manifest(), transfer: [] }
      case 'device':
        return outgoingDevice(await this.engine.device(job.argument as number))
      case 'times':
        return outgoingTimes(await this.engine.times(job.argument as number))
      case 'tile':
        return outgoingWhole(await this.engine.tile(job.argument as TileKey))
      case 'replay':
        return outgoingWhole(await this.engine.replay(job.argument as Requests['replay']['argument']))
      case 'largestFree': {
        const value = await this.engine.largestFree(job.argument as Requests['largestFree']['argument'])
        return { value, transfer: [value.buffer as ArrayBuffer] }
      }
      case 'whatIf':
        return this.inSlices(job, answerWhatIf)
      case 'change':
        return this.inSlices(job, answerChange)
      case 'leastMemory':
        return this.inSlices(job, answerMinimum)
      case 'code':
        return { value: await this.engine.code(job.argument as string), transfer: [] }
      case 'isIntact':
        return { value: this.engine.isIntact(job.argument as string), transfer: [] }
      case 'bytes':
        return { value: await this.engine.bytes(job.argument as string), transfer: [] }
    }
  }
}

/** setTimeout is clamped to 4 ms when nested; a message to oneself is not. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    const channel = new MessageChannel()
    channel.port1.onmessage = () => {
      channel.port1.close()
      resolve()
    }
    channel.port2.postMessage(null)
  })
}

interface WorkerScope {
  onmessage: ((event: MessageEvent<ToWorker>) => void) | null
  postMessage(message: FromWorker, transfer: ArrayBuffer[]): void
}

export function startWorker(scope: WorkerScope): void {
  let jobs: JobList | undefined
  scope.onmessage = ({ data }) => {
    if (data.type === 'start') {
      const { texts } = data
      jobs = new JobList(new Engine(new BlobStore((name) => texts[name])), (message, transfer) =>
        scope.postMessage(message, transfer),
      )
    } else jobs?.accept(data)
  }
  // Reports that the script runs here: some policies let a worker be created and then block it silently.
  scope.postMessage({ type: 'up' }, [])
}
