// Owns one WebGL2 context: its size, its frames, and what happens when the browser takes it away.
//
// Own code rather than a helper library: twgl, regl and picogl each weigh more than the three small programs here,
// and none of them rebuilds lost objects lazily, which is what a report left open overnight needs.

type FrameHandler = (now: number) => void

export class GlContext {
  readonly canvas: HTMLCanvasElement
  readonly gl: WebGL2RenderingContext
  /** No graphics card behind it: every pixel costs processor time. */
  readonly isSoftware: boolean
  /** Grows with every restored context. An object made for an older generation is gone and must be made again. */
  generation = 1
  private lost = false
  private frame = 0
  private readonly handlers: FrameHandler[] = []

  private constructor(canvas: HTMLCanvasElement, gl: WebGL2RenderingContext) {
    this.canvas = canvas
    this.gl = gl
    this.isSoftware = isSoftwareRenderer(gl)
    canvas.addEventListener('webglcontextlost', (event) => {
      event.preventDefault() // without this the browser never restores it
      this.lost = true
    })
    canvas.addEventListener('webglcontextrestored', () => {
      this.lost = false
      this.generation++
      this.requestFrame()
    })
  }

  /** Null where the browser has no WebGL2. */
  static create(canvas: HTMLCanvasElement): GlContext | null {
    const gl = canvas.getContext('webgl2', {
      alpha: false,
      depth: false,
      stencil: false,
      antialias: false, // everything is drawn to textures; multisampling the blit costs much and shows nothing
      powerPreference: 'low-power',
      // Pictures of the view and tests read pixels between frames.
      preserveDrawingBuffer: true,
    })
    return gl ? new GlContext(canvas, gl) : null
  }

  get isLost(): boolean {
    return this.lost || this.gl.isContextLost()
  }

  onFrame(handler: FrameHandler): void {
    this.handlers.push(handler)
  }

  /** Input handlers only ask for a frame; however many ask, one is drawn. */
  requestFrame(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(this.run)
  }

  /** Draws at once, so that a resize never shows an empty canvas. */
  drawNow(): void {
    if (this.frame !== 0) cancelAnimationFrame(this.frame)
    this.run(performance.now())
  }

  private readonly run = (now: number): void => {
    this.frame = 0
    for (const handler of this.handlers) handler(now)
  }

  /** Sets the size in device pixels; true when it changed. */
  resize(width: number, height: number): boolean {
    if (this.canvas.width === width && this.canvas.height === height) return false
    this.canvas.width = width
    this.canvas.height = height
    return true
  }

  /** Binds the canvas as target and fills it with one colour (0…1 each). */
  clear(color: readonly [number, number, number]): void {
    const gl = this.gl
    gl.bindFramebuffer(gl.FRAMEBUFFER, null)
    gl.viewport(0, 0, this.canvas.width, this.canvas.height)
    gl.clearColor(color[0], color[1], color[2], 1)
    gl.clear(gl.COLOR_BUFFER_BIT)
  }

  /** Loses the context and gets it back a moment later. */
  testContextLoss(): void {
    const extension = this.gl.getExtension('WEBGL_lose_context')
    if (!extension) return
    extension.loseContext()
    setTimeout(() => extension.restoreContext(), 50)
  }
}

function isSoftwareRenderer(gl: WebGL2RenderingContext): boolean {
  const info = gl.getExtension('WEBGL_debug_renderer_info')
  const name = String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER))
  return /swiftshader|llvmpipe|softpipe|software|basic render/i.test(name)
}
