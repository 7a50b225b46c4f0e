// What the painter of tiles fills and the blitter copies from.

import type { GlContext } from './context'
import type { Raster } from './raster'
import type { Surface } from './tile-stage'

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
