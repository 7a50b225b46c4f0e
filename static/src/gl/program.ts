// A linked program that survives a lost context: it is compiled again for each generation.

import type { GlContext } from './context'
import type { Raster } from './flat-stage'
import type { Surface } from './tile-stage'

export class Program {
  private generation = 0
  private checked = false
  private program: WebGLProgram | null = null
  private readonly uniforms = new Map<string, WebGLUniformLocation | null>()

  /** Sources without the version line. Vertex inputs give their locations by `layout(location = …)`. */
  constructor(
    private readonly context: GlContext,
    private readonly vertex: string,
    private readonly fragment: string,
  ) {}

  use(): void {
    const { gl } = this.context
    this.prepare()
    gl.useProgram(this.program)
    if (!this.checked) this.check()
  }

  /** Starts to compile; the browser does so in another thread. Checking the result would wait for it: use() does. */
  prepare(): void {
    const { gl, generation } = this.context
    if (this.generation === generation) return
    this.program = link(gl, this.vertex, this.fragment)
    this.uniforms.clear()
    this.generation = generation
    this.checked = false
  }

  /** Whether use() would not have to wait for the compiler. Checks only where the browser can answer without waiting. */
  isReady(): boolean {
    const { gl } = this.context
    this.prepare()
    if (this.checked || !this.program || gl.isContextLost()) return true
    const parallel = gl.getExtension('KHR_parallel_shader_compile')
    if (!parallel) return true
    if (gl.getProgramParameter(this.program, parallel.COMPLETION_STATUS_KHR) !== true) return false
    // Queried now, while nothing is being drawn: later the answer would wait for everything drawn before.
    this.check()
    return true
  }

  private check(): void {
    const { gl } = this.context
    this.checked = true
    if (!this.program || gl.getProgramParameter(this.program, gl.LINK_STATUS) || gl.isContextLost()) {
      if (this.program) gl.getUniformLocation(this.program, '') // fetches the table of all of them
      return
    }
    const shaders = gl.getAttachedShaders(this.program) ?? []
    const logs = shaders.map((shader) => gl.getShaderInfoLog(shader)).join(' ')
    throw new Error(`shader program does not link: ${gl.getProgramInfoLog(this.program)} ${logs}`)
  }

  /** Location of a uniform of the program in use. */
  at(name: string): WebGLUniformLocation | null {
    let location = this.uniforms.get(name)
    if (location === undefined) {
      location = this.program ? this.context.gl.getUniformLocation(this.program, name) : null
      this.uniforms.set(name, location)
    }
    return location
  }
}

function link(gl: WebGL2RenderingContext, vertex: string, fragment: string): WebGLProgram | null {
  const program = gl.createProgram()
  if (!program) return null // the context is lost; the next generation tries again
  const shaders = [compile(gl, gl.VERTEX_SHADER, vertex), compile(gl, gl.FRAGMENT_SHADER, fragment)]
  for (const shader of shaders) if (shader) gl.attachShader(program, shader)
  gl.linkProgram(program)
  return program
}

function compile(gl: WebGL2RenderingContext, kind: number, source: string): WebGLShader | null {
  const shader = gl.createShader(kind)
  if (!shader) return null
  gl.shaderSource(shader, `#version 300 es\nprecision highp float;\nprecision highp int;\n${source}`)
  gl.compileShader(shader)
  return shader
}

/** A picture as a texture, painted through its framebuffer. */
export interface Texture extends Surface {
  texture: WebGLTexture
  framebuffer: WebGLFramebuffer
  generation: number
  paletteVersion: number
  /** Where it is painted by the processor before it moves to the texture; null once it is there. */
  pixels: Raster | null
}

/** A texture whose framebuffer is bound, with nothing in it yet; null when the context is lost. */
export function makeTexture(
  { gl, generation }: GlContext,
  width: number,
  height: number,
  paletteVersion: number,
): Texture | null {
  const texture = gl.createTexture()
  const framebuffer = gl.createFramebuffer()
  if (!texture || !framebuffer) return null
  gl.activeTexture(gl.TEXTURE0)
  gl.bindTexture(gl.TEXTURE_2D, texture)
  gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA8, width, height)
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.LINEAR)
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.LINEAR)
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE)
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE)
  gl.bindFramebuffer(gl.FRAMEBUFFER, framebuffer)
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0)
  return { texture, framebuffer, width, height, generation, paletteVersion, pixels: null }
}

export function freeTexture({ gl, generation }: GlContext, { framebuffer, texture, generation: made }: Texture): void {
  if (made !== generation) return
  gl.deleteFramebuffer(framebuffer)
  gl.deleteTexture(texture)
}
