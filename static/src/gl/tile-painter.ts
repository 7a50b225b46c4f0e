// Draws rectangles as indexed triangles into whatever framebuffer is bound.
//
// Indexed triangles on purpose: a software renderer draws 20,000 quads this way in 17 ms, as instances in 182 ms.
// Vertices are made here and streamed, so no mesh stays on the GPU: a tile is drawn once and lives on as a texture.

import type { GlContext } from './context'
import { Program } from './program'
import { HATCH, HATCH_SHARE } from './flat-stage'
import type { QuadSource } from './tile-stage'

/** Indices are 16 bits wide: 16384 quads have 65536 corners. */
export const MAX_BATCH = 16384

const BYTES_PER_VERTEX = 16

const VERTEX = `
layout(location = 0) in vec2 position;
layout(location = 1) in uint key;
layout(location = 2) in float rows;
uniform vec2 scale;
uniform sampler2D palette;
flat out vec4 fill;
flat out vec2 band;
out float row;
void main() {
  gl_Position = vec4(position * scale - 1.0, 0.0, 1.0);
  int index = int(key >> 8u);
  float shade = float(key & 255u) / 128.0 - 1.0;
  vec4 color = texelFetch(palette, ivec2(index & 1023, index >> 10), 0);
  fill = vec4(clamp(color.rgb * (1.0 + 0.09 * shade), 0.0, 1.0), color.a);
  // A band of a few rows has no room for an edge; the edge fades in with height.
  band = vec2(rows, clamp((rows - 3.0) / 9.0, 0.0, 1.0));
  row = (gl_VertexID & 2) != 0 ? rows : 0.0;
}`

const FRAGMENT = `
flat in vec4 fill;
flat in vec2 band;
in float row;
out vec4 color;
void main() {
  if (fill.a < 1.0 && mod(gl_FragCoord.x - gl_FragCoord.y, ${HATCH}.0) < 1.0) {
    float ink = dot(fill.rgb, vec3(0.299, 0.587, 0.114)) < 0.6 ? 1.0 : 0.0;
    color = vec4(mix(fill.rgb, vec3(ink), ${HATCH_SHARE}), 1.0);
    return;
  }
  float edge = row < 1.0 ? 0.34 * band.y : 0.0;
  color = vec4(fill.rgb * (1.0 - edge), 1.0);
}`

export class TilePainter {
  private readonly program: Program
  private generation = 0
  private array: WebGLVertexArrayObject | null = null
  private vertices: WebGLBuffer | null = null
  private readonly buffer = new ArrayBuffer(MAX_BATCH * 4 * BYTES_PER_VERTEX)
  private readonly floats = new Float32Array(this.buffer)
  private readonly words = new Uint32Array(this.buffer)
  readonly palette: Palette

  constructor(private readonly context: GlContext) {
    this.program = new Program(context, VERTEX, FRAGMENT)
    this.palette = new Palette(context)
  }

  /** Compiles ahead. */
  prepare(): void {
    this.program.prepare()
  }

  /** Whether the program is compiled. */
  isReady(): boolean {
    return this.program.isReady()
  }

  /** Draws quads [from, from + count) of the source so that its spans fill the viewport; heightRows: rows of the viewport. */
  paint(source: QuadSource, from: number, count: number, xScale: number, heightRows: number): void {
    const { gl } = this.context
    this.program.use()
    this.bindBuffers()
    this.palette.bind(0)
    gl.uniform1i(this.program.at('palette'), 0)
    gl.uniform2f(this.program.at('scale'), 2 / xScale, 2 / source.ySpan)
    gl.disable(gl.BLEND)
    const rowsPerUnit = heightRows / source.ySpan
    for (let done = 0; done < count; done += MAX_BATCH) {
      const batch = Math.min(MAX_BATCH, count - done)
      this.fillVertices(source, from + done, batch, rowsPerUnit)
      gl.bufferSubData(gl.ARRAY_BUFFER, 0, this.floats, 0, batch * 16)
      gl.drawElements(gl.TRIANGLES, batch * 6, gl.UNSIGNED_SHORT, 0)
    }
    gl.bindVertexArray(null)
  }

  private fillVertices(source: QuadSource, from: number, count: number, rowsPerUnit: number): void {
    const { floats, words } = this
    const { rects } = source
    let out = 0
    for (let quad = from; quad < from + count; quad++) {
      const xa = rects[4 * quad]!
      const xb = rects[4 * quad + 1]!
      const ya = rects[4 * quad + 2]!
      const yb = rects[4 * quad + 3]!
      const key = source.keyOf(quad)
      const rows = (yb - ya) * rowsPerUnit
      for (let corner = 0; corner < 4; corner++) {
        floats[out] = corner & 1 ? xb : xa
        floats[out + 1] = corner & 2 ? yb : ya
        words[out + 2] = key
        floats[out + 3] = rows
        out += 4
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
      gl.bufferData(gl.ARRAY_BUFFER, this.buffer.byteLength, gl.STREAM_DRAW)
      gl.enableVertexAttribArray(0)
      gl.vertexAttribPointer(0, 2, gl.FLOAT, false, BYTES_PER_VERTEX, 0)
      gl.enableVertexAttribArray(1)
      gl.vertexAttribIPointer(1, 1, gl.UNSIGNED_INT, BYTES_PER_VERTEX, 8)
      gl.enableVertexAttribArray(2)
      gl.vertexAttribPointer(2, 1, gl.FLOAT, false, BYTES_PER_VERTEX, 12)
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer())
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, cornerIndices(), gl.STATIC_DRAW)
      this.generation = generation
    }
    gl.bindVertexArray(this.array)
    gl.bindBuffer(gl.ARRAY_BUFFER, this.vertices)
  }
}

/** Two triangles per quad, whose corners are numbered: bit 0 right, bit 1 top. */
export function cornerIndices(): Uint16Array {
  const indices = new Uint16Array(MAX_BATCH * 6)
  for (let quad = 0; quad < MAX_BATCH; quad++) {
    const corner = quad * 4
    indices.set([corner, corner + 1, corner + 2, corner + 2, corner + 1, corner + 3], quad * 6)
  }
  return indices
}

const WIDTH = 1024

class Palette {
  private generation = 0
  private texture: WebGLTexture | null = null
  private rgba: Uint8Array = new Uint8Array(4)
  private uploaded = false
  background: readonly [number, number, number] = [1, 1, 1]
  /** Grows with every change; what was painted with an older version is out of date. */
  version = 0

  constructor(private readonly context: GlContext) {}

  /** rgba: 4 bytes per key; background (0…1 each): what a picture shows where there is nothing. */
  set(rgba: Uint8Array, background: readonly [number, number, number]): void {
    this.rgba = rgba
    this.background = background
    this.uploaded = false
    this.version++
  }

  /** Binds the texture to a unit. */
  bind(unit: number): void {
    const { gl, generation } = this.context
    gl.activeTexture(gl.TEXTURE0 + unit)
    if (this.generation !== generation) {
      this.texture = gl.createTexture()
      this.generation = generation
      this.uploaded = false
    }
    gl.bindTexture(gl.TEXTURE_2D, this.texture)
    if (this.uploaded) return
    const rows = Math.max(1, Math.ceil(this.rgba.length / 4 / WIDTH))
    const padded = new Uint8Array(WIDTH * rows * 4)
    padded.set(this.rgba)
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, WIDTH, rows, 0, gl.RGBA, gl.UNSIGNED_BYTE, padded)
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST)
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST)
    this.uploaded = true
  }
}
