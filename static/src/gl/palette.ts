// Colours by key, as a texture that the vertex shader reads: a theme or a highlight changes this texture, never a mesh.

import type { GlContext } from './context'

const WIDTH = 1024

export class Palette {
  private readonly context: GlContext
  private generation = 0
  private texture: WebGLTexture | null = null
  private rgba: Uint8Array = new Uint8Array(4)
  private uploaded = false
  background: readonly [number, number, number] = [1, 1, 1]
  /** Grows with every change; what was painted with an older version is out of date. */
  version = 0

  constructor(context: GlContext) {
    this.context = context
  }

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
