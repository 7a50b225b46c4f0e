// Where the view of a job is shown: its code and its columns are read when it first comes on screen.

import { JOB_CODE, type JobPage, runJob } from '../job/interface'
import { fill, h } from '../ui/dom'
import type { State } from '../ui/state'
import { isDark } from '../ui/theme'
import type { ViewParts } from '../views/view'

interface Parts extends ViewParts {
  /** Its controls are there, or the bundle cannot be run. */
  onLoaded(): void
  onError(error: unknown): void
}

export class JobHost {
  readonly element = h('div.stage.column.fill.job-stage', { hidden: true })
  readonly tools = h('div.row.wrap.view-tools', { hidden: true })
  private page: JobPage | null = null
  private loading: Promise<void> | null = null

  constructor(private readonly parts: Parts) {}

  /** Shows or hides the view, as the state says. */
  show(state: State): void {
    const isShown = state.view === 'job'
    this.element.hidden = !isShown
    this.tools.hidden = !isShown || this.page === null
    if (!isShown) return
    if (this.page) this.page.show(state, isDark(state.theme))
    else this.load().catch((error: unknown) => this.parts.onError(error))
  }

  async settled(): Promise<void> {
    await this.load()
    await this.page?.settled()
  }

  key(event: KeyboardEvent): boolean {
    return this.page?.key(event) ?? false
  }

  picture(): Promise<HTMLCanvasElement> | null {
    return this.page && Promise.resolve(this.page.picture())
  }

  debug(): unknown {
    return this.page?.debug() ?? null
  }

  private load(): Promise<void> {
    this.loading ??= this.read()
    return this.loading
  }

  private async read(): Promise<void> {
    const { client, store, announce, saved } = this.parts
    const manifest = client.manifest.job
    if (!manifest) throw new Error('this report is of no job')
    const [code, columns, heat] = await Promise.all([
      client.code(JOB_CODE),
      client.section('job'),
      client.section('job.heat'),
    ])
    const openDevice = (device: number): void => store.set({ view: 'timeline', device })
    this.page = runJob(code)({ manifest, columns, heat, store, openDevice, announce, saved })
    fill(this.element, this.page.element)
    fill(this.tools, this.page.tools)
    this.parts.onLoaded()
  }
}
