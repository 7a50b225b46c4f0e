// Tiles as textures of WebGL. Without a graphics card the processor paints them here rather than through WebGL: that takes
// a third of the time, since an emulated card spends most of it on setting up triangles that are a few pixels large.

import type { GlContext, Target } from './context'
import { fillQuads, packColour } from './flat-stage'
import { freeTexture, makeTexture, Program, type Texture } from './program'
import { TilePainter } from './tile-painter'
import { type Part, type QuadSource, TileStage } from './tile-stage'

/** Quads painted in one frame. Without a graphics card 12,000 take about 4 ms; while the view moves, its frames come first. */
const QUADS_PER_FRAME = { card: { still: 30_000, moving: 30_000 }, software: { still: 36_000, moving: 12_000 } }
/** Filling 4 MB with the background and moving them to a texture. */
const QUADS_PER_UPLOAD = 10_000
const TEXTURE_BUDGET_BYTES = 144 * 2 ** 20

/** What a frame shows of the tiles. */
export interface Shown {
  parts: readonly Part[]
  pictures: readonly (Texture | null)[]
  fast: boolean
  background: readonly [number, number, number]
}

export class GlStage extends TileStage<Texture> {
  readonly quadsPerFrame
  readonly isSoftware
  protected override readonly quadsPerPicture
  shown: Shown = { parts: [], pictures: [], fast: false, background: [1, 1, 1] }
  private readonly painter: TilePainter
  private readonly blitter: Blitter
  private rgba: Uint8Array = new Uint8Array(4)
  /** Pixels of the last picture, for the next. */
  private spare: Uint32Array | null = null

  constructor(private readonly context: GlContext) {
    super(TEXTURE_BUDGET_BYTES)
    this.isSoftware = context.isSoftware
    this.quadsPerPicture = context.isSoftware ? QUADS_PER_UPLOAD : 1000
    this.quadsPerFrame = QUADS_PER_FRAME[context.isSoftware ? 'software' : 'card']
    this.painter = new TilePainter(context)
    this.blitter = new Blitter(context)
  }

  /** Starts to compile what the first picture needs. */
  prepare(): void {
    if (!this.isSoftware) this.painter.prepare()
    this.blitter.prepare()
  }

  isReady(): boolean {
    return !this.context.isLost && (this.isSoftware || this.painter.isReady()) && this.blitter.isReady()
  }

  prepareAll(): void {
    this.blitter.prepareAll()
  }

  setColours(rgba: Uint8Array, background: readonly [number, number, number]): void {
    this.rgba = rgba
    this.painter.palette.set(rgba, background)
  }

  /** Only notes what the frame shows: it is drawn together with the rectangles over it (see backdrop.ts). */
  draw(parts: readonly Part[], fast: boolean): void {
    const { background } = this.painter.palette
    this.shown = { parts, pictures: parts.map(({ id }) => this.picture(id)), fast, background }
  }

  /** Draws what the frame shows. */
  drawShown(target: Target): void {
    const { parts, pictures, fast, background } = this.shown
    const pictureOf = new Map(parts.map(({ id }, i) => [id, pictures[i]]))
    this.context.clear(target, background)
    this.blitter.draw(target, parts, (id) => pictureOf.get(id) ?? null, fast)
  }

  /** Copies a picture of the same size. */
  copy(target: Target, picture: Texture): void {
    const { width, height } = picture
    const whole = { id: '', u0: 0, u1: width, v0: 0, v1: height, x0: 0, x1: width, y0: 0, y1: height }
    this.blitter.draw(target, [whole], () => picture, true)
  }

  protected isCurrent(texture: Texture): boolean {
    return texture.paletteVersion === this.painter.palette.version
  }

  protected isAlive(texture: Texture): boolean {
    return texture.generation === this.context.generation
  }

  protected paintQuads(texture: Texture, source: QuadSource, from: number, count: number, xScale: number): void {
    if (texture.pixels) return fillQuads(texture.pixels, this.rgba, source, from, count, xScale)
    this.context.bind(texture)
    this.painter.paint(source, from, count, xScale, texture.height)
  }

  protected make(width: number, height: number): Texture | null {
    const { palette } = this.painter
    const texture = makeTexture(this.context, width, height, palette.version)
    if (texture && this.isSoftware) {
      const words = this.spare?.length === width * height ? this.spare : new Uint32Array(width * height)
      this.spare = null
      texture.pixels = { words: words.fill(packColour(palette.background)), width, height, bottomUp: true }
    } else if (texture) this.context.clear(texture, palette.background)
    return texture
  }

  protected override finish(picture: Texture): void {
    const { texture, pixels, width, height } = picture
    if (!pixels) return
    const { gl } = this.context
    gl.activeTexture(gl.TEXTURE0)
    gl.bindTexture(gl.TEXTURE_2D, texture)
    gl.texSubImage2D(
      gl.TEXTURE_2D,
      0,
      0,
      0,
      width,
      height,
      gl.RGBA,
      gl.UNSIGNED_BYTE,
      new Uint8Array(pixels.words.buffer),
    )
    this.spare = pixels.words
    picture.pixels = null
  }

  protected free(texture: Texture): void {
    freeTexture(this.context, texture)
  }
}

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

class Blitter {
  private readonly programs: Record<'smooth' | 'wide' | 'fast', Program>
  private generation = 0
  private array: WebGLVertexArrayObject | null = null

  constructor(private readonly context: GlContext) {
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
