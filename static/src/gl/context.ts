// Owns one WebGL2 context: its canvas, and its loss and restoration.
//
// Own code rather than a helper library. Bundled and minified by esbuild alone, with what this page would use of each:
// twgl.js 7.0.0 58.4 KB, picogl 0.17.9 66.7 KB, regl 2.1.1 123.2 KB; this file and program.ts, which they would replace,
// 4.0 KB, and all that draws by WebGL here 20.1 KB. None of them makes lost objects again when they are next needed, which
// is what a report left open overnight needs.

/** Where something is drawn: a texture, or the canvas, which has no framebuffer of its own. */
export interface Target {
  framebuffer: WebGLFramebuffer | null
  width: number
  height: number
}

export class GlContext {
  /** No graphics card behind it: every pixel costs processor time. */
  readonly isSoftware: boolean
  /** Grows with every restored context. An object created for an older generation is lost and must be created again. */
  generation = 1
  /** The context is lost or restored: everything on the graphics card has to be created again. */
  onRestored: () => void = () => {}
  private lost = false

  private constructor(
    readonly canvas: HTMLCanvasElement,
    readonly gl: WebGL2RenderingContext,
  ) {
    this.isSoftware = isSoftwareRenderer(gl)
    canvas.addEventListener('webglcontextlost', (event) => {
      event.preventDefault() // without this the browser never restores it
      this.lost = true
    })
    canvas.addEventListener('webglcontextrestored', () => {
      this.lost = false
      this.generation++
      this.onRestored()
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

  /** The canvas as something to draw on. */
  get screen(): Target {
    return { framebuffer: null, width: this.canvas.width, height: this.canvas.height }
  }

  bind({ framebuffer, width, height }: Target): void {
    this.gl.bindFramebuffer(this.gl.FRAMEBUFFER, framebuffer)
    this.gl.viewport(0, 0, width, height)
  }

  /** Binds a target and fills it with one colour (0…1 each). Opaque, so that nothing below needs blending. */
  clear(target: Target, color: readonly [number, number, number]): void {
    const { gl } = this
    this.bind(target)
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
