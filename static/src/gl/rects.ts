// Plain rectangles over the picture, in one draw call. Lines that run along the axes are rectangles too: drawn here they
// cost next to nothing, while a second full-size canvas costs a whole frame where graphics are emulated.

import type { GlContext, Target } from './context'
import { Program, type Texture } from './program'
import { cornerIndices, MAX_BATCH } from './tile-painter'

/** Red, green, blue, alpha: 0…255 each, alpha not multiplied in. */
export type Colour = readonly [red: number, green: number, blue: number, alpha?: number]

/** Collects rectangles in CSS pixels, y down, in drawing order. */
export class RectList {
  count = 0
  /** The number of rectangles, from the first, that change only with the window and the selection. */
  fixed = 0
  coordinates = new Float32Array(4 * 1024)
  colours = new Uint32Array(1024)
  private packed = 0

  clear(): void {
    this.count = this.fixed = 0
  }

  /** The rectangles that follow change with every move of a drag. */
  endFixed(): void {
    this.fixed = this.count
  }

  /** Rectangles [from, to) on their own. */
  slice(from: number, to: number): RectList {
    const part = new RectList()
    part.count = to - from
    part.coordinates = this.coordinates.slice(4 * from, 4 * to)
    part.colours = this.colours.slice(from, to)
    return part
  }

  /** Whether these begin with all of the others. */
  startsWith(others: RectList): boolean {
    for (let i = 0; i < others.count; i++) if (this.colours[i] !== others.colours[i]) return false
    for (let i = 0; i < 4 * others.count; i++) if (this.coordinates[i] !== others.coordinates[i]) return false
    return true
  }

  /** Colour of the rectangles that follow. */
  ink([r, g, b, a = 255]: Colour, opacity = 1): void {
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

/** Draws a picture of the target's size inside the rectangles only. */
const UNCOVER = `
uniform sampler2D picture;
out vec4 color;
void main() {
  color = texelFetch(picture, ivec2(gl_FragCoord.xy), 0);
}`

export class RectPainter {
  private readonly program: Program
  private readonly uncovering: Program
  private generation = 0
  private array: WebGLVertexArrayObject | null = null
  private vertices: WebGLBuffer | null = null
  private readonly floats = new Float32Array(MAX_BATCH * 4 * WORDS_PER_VERTEX)
  private readonly words = new Uint32Array(this.floats.buffer)

  constructor(private readonly context: GlContext) {
    this.program = new Program(context, VERTEX, FRAGMENT)
    this.uncovering = new Program(context, VERTEX, UNCOVER)
  }

  /** Compiles ahead. */
  prepare(): void {
    this.program.prepare()
  }

  /** Whether the program is compiled. */
  isReady(): boolean {
    return this.program.isReady()
  }

  /** Draws rectangles [from, to) onto a target that is width × height CSS pixels. Edges fall on whole device pixels. */
  draw(target: Target, list: RectList, from: number, to: number, width: number, height: number): void {
    this.run(this.program, target, list, from, to, width, height)
  }

  /** Undoes the rectangles of a list: inside them the target shows the given picture, which has its size, again. */
  uncover(target: Target, list: RectList, picture: Texture, width: number, height: number): void {
    const { gl } = this.context
    gl.activeTexture(gl.TEXTURE0)
    gl.bindTexture(gl.TEXTURE_2D, picture.texture)
    this.run(this.uncovering, target, list, 0, list.count, width, height)
  }

  private run(
    program: Program,
    target: Target,
    list: RectList,
    first: number,
    to: number,
    width: number,
    height: number,
  ): void {
    if (to <= first) return
    const { gl } = this.context
    this.context.bind(target)
    program.use()
    this.bindBuffers()
    gl.uniform2f(program.at('scale'), 2 / target.width, 2 / target.height)
    gl.enable(gl.BLEND)
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA)
    for (let from = first; from < to; from += MAX_BATCH) {
      const count = Math.min(MAX_BATCH, to - from)
      this.fillVertices(list, from, count, target.width / width, target.height / height)
      gl.bufferSubData(gl.ARRAY_BUFFER, 0, this.floats, 0, count * 4 * WORDS_PER_VERTEX)
      gl.drawElements(gl.TRIANGLES, count * 6, gl.UNSIGNED_SHORT, 0)
    }
    gl.bindVertexArray(null)
  }

  private fillVertices(
    { coordinates, colours }: RectList,
    from: number,
    count: number,
    ratioX: number,
    ratioY: number,
  ): void {
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

/** The same on a 2D canvas, whose pixels are so many per CSS pixel. `left`, `top`: its corner, in its own pixels. */
export function drawRectsFlat(
  ctx: CanvasRenderingContext2D,
  list: RectList,
  ratioX: number,
  ratioY: number,
  left = 0,
  top = 0,
): void {
  ctx.setTransform(1, 0, 0, 1, -left, -top)
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
