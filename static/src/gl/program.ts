// A linked program that survives a lost context: it is compiled on first use of each generation.

import type { GlContext } from './context'

export class Program {
  private readonly context: GlContext
  private readonly vertex: string
  private readonly fragment: string
  private generation = 0
  private program: WebGLProgram | null = null
  private readonly uniforms = new Map<string, WebGLUniformLocation | null>()

  /** Sources without the version line. Vertex inputs give their locations by `layout(location = …)`. */
  constructor(context: GlContext, vertex: string, fragment: string) {
    this.context = context
    this.vertex = vertex
    this.fragment = fragment
  }

  use(): void {
    const { gl, generation } = this.context
    if (this.generation !== generation) {
      this.program = link(gl, this.vertex, this.fragment)
      this.uniforms.clear()
      this.generation = generation
    }
    gl.useProgram(this.program)
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
  if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) {
    const logs = shaders.map((shader) => (shader ? gl.getShaderInfoLog(shader) : '')).join(' ')
    throw new Error(`shader program does not link: ${gl.getProgramInfoLog(program)} ${logs}`)
  }
  for (const shader of shaders) if (shader) gl.deleteShader(shader)
  return program
}

function compile(gl: WebGL2RenderingContext, kind: number, source: string): WebGLShader | null {
  const shader = gl.createShader(kind)
  if (!shader) return null
  gl.shaderSource(shader, `#version 300 es\nprecision highp float;\nprecision highp int;\n${source}`)
  gl.compileShader(shader)
  return shader
}
