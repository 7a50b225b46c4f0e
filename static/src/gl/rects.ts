// Plain rectangles over the picture, in one draw call. Lines that run along the axes are rectangles too: drawn here they
// cost next to nothing, while a second full-size canvas costs a whole frame where graphics are emulated.

import type { GlContext } from './context'
import { Program } from './program'
import { cornerIndices, MAX_BATCH } from './tile-painter'

/** Red, green, blue, alpha: 0…255 each, alpha not multiplied in. */
export type Colour = readonly [number, number, number, number]

/** Collects rectangles in CSS pixels, y down, in drawing order. */
export class RectList {
  count = 0
  coordinates = new Float32Array(4 * 1024)
  colours = new Uint32Array(1024)
  private packed = 0

  clear(): void {
    this.count = 0
  }

  /** Colour of the rectangles that follow. */
  ink([r, g, b, a]: Colour, opacity = 1): void {
    const alpha = (a / 255) * opacity
    const byte = (value: number): number => Math.round(value * alpha) & 255
    this.packed = ((Math.round(255 * alpha) << 24) | (byte(b) << 16) | (byte(g) << 8) | byte(r)) >>> 0
  }

  add(x0: number, y0: number, x1: number, y1: number): void {
    if (this.count === this.colours.length) this.grow()
    const at = 4 * this.count
    this.coordinates[at] = x0
    this.coordinates[at + 1] = y0
    this.coordinates[at + 2] = x1
    this.coordinates[at + 3] = y1
    this.colours[this.count++] = this.packed
  }

  private grow(): void {
    const coordinates = new Float32Array(2 * this.coordinates.length)
    coordinates.set(this.coordinates)
    this.coordinates = coordinates
    const colours = new Uint32Array(2 * this.colours.length)
    colours.set(this.colours)
    this.colours = colours
  }
}

const WORDS_PER_VERTEX = 3

const VERTEX = `
layout(location = 0) in vec2 position;
layout(location = 1) in vec4 colour;
uniform vec2 scale;
flat out vec4 fill;
void main() {
  gl_Position = vec4(position.x * scale.x - 1.0, 1.0 - position.y * scale.y, 0.0, 1.0);
  fill = colour;
}`

const FRAGMENT = `
flat in vec4 fill;
out vec4 color;
void main() {
  color = fill;
}`

export class RectPainter {
  private readonly context: GlContext
  private readonly program: Program
  private generation = 0
  private array: WebGLVertexArrayObject | null = null
  private vertices: WebGLBuffer | null = null
  private readonly floats = new Float32Array(MAX_BATCH * 4 * WORDS_PER_VERTEX)
  private readonly words = new Uint32Array(this.floats.buffer)

  constructor(context: GlContext) {
    this.context = context
    this.program = new Program(context, VERTEX, FRAGMENT)
  }

  /** Compiles ahead. */
  prepare(): void {
    this.program.prepare()
  }

  /** Whether the program is compiled. */
  isReady(): boolean {
    return this.program.isReady()
  }

  /** Draws onto the canvas, which is width × height CSS pixels. Edges fall on whole device pixels. */
  draw(list: RectList, width: number, height: number): void {
    if (list.count === 0) return
    const { gl, canvas } = this.context
    gl.bindFramebuffer(gl.FRAMEBUFFER, null)
    gl.viewport(0, 0, canvas.width, canvas.height)
    this.program.use()
    this.bindBuffers()
    gl.uniform2f(this.program.at('scale'), 2 / canvas.width, 2 / canvas.height)
    gl.enable(gl.BLEND)
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA)
    for (let from = 0; from < list.count; from += MAX_BATCH) {
      const count = Math.min(MAX_BATCH, list.count - from)
      this.fillVertices(list, from, count, canvas.width / width, canvas.height / height)
      gl.bufferSubData(gl.ARRAY_BUFFER, 0, this.floats, 0, count * 4 * WORDS_PER_VERTEX)
      gl.drawElements(gl.TRIANGLES, count * 6, gl.UNSIGNED_SHORT, 0)
    }
    gl.bindVertexArray(null)
  }

  private fillVertices({ coordinates, colours }: RectList, from: number, count: number, ratioX: number, ratioY: number): void {
    const { floats, words } = this
    let out = 0
    for (let rect = from; rect < from + count; rect++) {
      // Rounded, and never thinner than a device pixel: without that a thin line would come and go as the view moves.
      const x0 = Math.round(coordinates[4 * rect] * ratioX)
      const y0 = Math.round(coordinates[4 * rect + 1] * ratioY)
      const x1 = Math.max(x0 + 1, Math.round(coordinates[4 * rect + 2] * ratioX))
      const y1 = Math.max(y0 + 1, Math.round(coordinates[4 * rect + 3] * ratioY))
      for (let corner = 0; corner < 4; corner++) {
        floats[out] = corner & 1 ? x1 : x0
        floats[out + 1] = corner & 2 ? y1 : y0
        words[out + 2] = colours[rect]
        out += WORDS_PER_VERTEX
      }
    }
  }

  private bindBuffers(): void {
    const { gl, generation } = this.context
    if (this.generation !== generation) {
      this.array = gl.createVertexArray()
      gl.bindVertexArray(this.array)
      this.vertices = gl.createBuffer()
      gl.bindBuffer(gl.ARRAY_BUFFER, this.vertices)
      gl.bufferData(gl.ARRAY_BUFFER, this.floats.byteLength, gl.STREAM_DRAW)
      gl.enableVertexAttribArray(0)
      gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 4 * WORDS_PER_VERTEX, 0)
      gl.enableVertexAttribArray(1)
      gl.vertexAttribPointer(1, 4, gl.UNSIGNED_BYTE, true, 4 * WORDS_PER_VERTEX, 8)
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer())
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, cornerIndices(), gl.STATIC_DRAW)
      this.generation = generation
    }
    gl.bindVertexArray(this.array)
    gl.bindBuffer(gl.ARRAY_BUFFER, this.vertices)
  }
}

/** The same on a 2D canvas, whose pixels are so many per CSS pixel. */
export function drawRectsFlat(ctx: CanvasRenderingContext2D, list: RectList, ratioX: number, ratioY: number): void {
  ctx.setTransform(1, 0, 0, 1, 0, 0)
  let packed = -1
  for (let rect = 0; rect < list.count; rect++) {
    if (list.colours[rect] !== packed) {
      packed = list.colours[rect]
      ctx.fillStyle = cssOf(packed)
    }
    const { coordinates } = list
    const x0 = Math.round(coordinates[4 * rect] * ratioX)
    const y0 = Math.round(coordinates[4 * rect + 1] * ratioY)
    const x1 = Math.max(x0 + 1, Math.round(coordinates[4 * rect + 2] * ratioX))
    const y1 = Math.max(y0 + 1, Math.round(coordinates[4 * rect + 3] * ratioY))
    ctx.fillRect(x0, y0, x1 - x0, y1 - y0)
  }
}

function cssOf(packed: number): string {
  const alpha = packed >>> 24
  const byte = (shift: number): number => (alpha ? Math.round((((packed >> shift) & 255) * 255) / alpha) : 0)
  return `rgb(${byte(0)} ${byte(8)} ${byte(16)} / ${alpha / 255})`
}
