// Puts parts of pictures on the canvas or another picture, crisp at every scale.

import type { GlContext, Target } from './context'
import { Program } from './program'
import type { Texture } from './texture'
import type { Part } from './tile-stage'

const VERTEX = `
uniform vec4 place;
uniform vec4 part;
out vec2 texel;
void main() {
  vec2 corner = vec2(float(gl_VertexID & 1), float(gl_VertexID >> 1));
  gl_Position = vec4(mix(place.xy, place.zw, corner), 0.0, 1.0);
  texel = mix(part.xy, part.zw, corner);
}`

const HEAD = `
in vec2 texel;
uniform sampler2D picture;
uniform vec2 size;
uniform vec2 scale;
out vec4 color;
`

// Magnified texels keep hard borders, one device pixel soft; minified ones are averaged by the linear filter.
const SHARP = `
  vec2 seam = floor(texel + 0.5);
  vec2 near = clamp((texel - seam) * max(scale, 1.0), -0.5, 0.5);
  color = texture(picture, (seam + near) / size);
`

const SMOOTH = `${HEAD}void main() {${SHARP}}`

// Where columns are wide, a border between two colours side by side gets a thin line, as bands have above each other.
const WIDE = `${HEAD}void main() {${SHARP}
  float inside = (texel.x - floor(texel.x)) * scale.x;
  if (inside < 1.0) {
    vec2 here = vec2(floor(texel.x) + 0.5, seam.y + near.y);
    vec3 change = abs(texture(picture, here / size).rgb - texture(picture, (here - vec2(1.0, 0.0)) / size).rgb);
    color.rgb *= 1.0 - 0.3 * smoothstep(0.02, 0.12, max(change.r, max(change.g, change.b)));
  }
}`

// A third of the cost of the smooth one where every pixel is worked out by the processor.
const FAST = `${HEAD}void main() {
  color = texelFetch(picture, ivec2(min(texel, size - 1.0)), 0);
}`

/** Columns wider than this many device pixels get borders. */
const WIDE_PIXELS = 5

export class Blitter {
  private readonly context: GlContext
  private readonly programs: Record<'smooth' | 'wide' | 'fast', Program>
  private generation = 0
  private array: WebGLVertexArrayObject | null = null

  constructor(context: GlContext) {
    this.context = context
    this.programs = {
      smooth: new Program(context, VERTEX, SMOOTH),
      wide: new Program(context, VERTEX, WIDE),
      fast: new Program(context, VERTEX, FAST),
    }
  }

  /** Compiles in advance what the first picture needs; prepareAll compiles the rest, once there is time. */
  prepare(): void {
    this.programs.smooth.prepare()
  }

  prepareAll(): void {
    for (const program of Object.values(this.programs)) program.prepare()
  }

  /** Whether the programs for the first picture are compiled. */
  isReady(): boolean {
    return this.programs.smooth.isReady()
  }

  /** Draws in the given order, later ones over earlier ones. fast: speed before quality. */
  draw(target: Target, parts: readonly Part[], textureOf: (id: string) => Texture | null, fast: boolean): void {
    const { gl, generation } = this.context
    this.context.bind(target)
    if (this.generation !== generation) {
      this.array = gl.createVertexArray() // no inputs, but a vertex array must be bound
      this.generation = generation
    }
    gl.bindVertexArray(this.array)
    gl.disable(gl.BLEND)
    gl.activeTexture(gl.TEXTURE0)
    for (const blit of parts) {
      const picture = textureOf(blit.id)
      if (!picture) continue
      const scaleX = (blit.x1 - blit.x0) / (blit.u1 - blit.u0)
      const scaleY = (blit.y1 - blit.y0) / (blit.v1 - blit.v0)
      const program = this.programs[fast ? 'fast' : scaleX > WIDE_PIXELS ? 'wide' : 'smooth']
      program.use()
      gl.bindTexture(gl.TEXTURE_2D, picture.texture)
      gl.uniform1i(program.at('picture'), 0)
      gl.uniform4f(program.at('part'), blit.u0, blit.v0, blit.u1, blit.v1)
      gl.uniform2f(program.at('size'), picture.width, picture.height)
      gl.uniform2f(program.at('scale'), scaleX, scaleY)
      gl.uniform4f(
        program.at('place'),
        (2 * blit.x0) / target.width - 1,
        (2 * blit.y0) / target.height - 1,
        (2 * blit.x1) / target.width - 1,
        (2 * blit.y1) / target.height - 1,
      )
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4)
    }
    gl.bindVertexArray(null)
  }
}
