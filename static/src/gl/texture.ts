// What the painter of tiles fills and the blitter copies from.

import type { Surface } from './tile-stage'

/** A picture as a texture, painted through its framebuffer. */
export interface Texture extends Surface {
  texture: WebGLTexture
  framebuffer: WebGLFramebuffer
  generation: number
  paletteVersion: number
}
