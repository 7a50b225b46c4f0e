// A heat map by WebGL: the cells are a texture of levels, the colours another, and one rectangle shows the window. Sorting,
// brushing and themes change a texture of some hundred KB; a zoom changes four numbers.

import type { Rect } from '../layout/viewport'
import type { GlContext } from './context'
import { Program } from './program'

/** Cells at least so many pixels wide or tall have a line between them. */
const GAP_FROM_PIXELS = 9
/** The share of its colour that a dimmed cell keeps. */
const DIMMED = 0.28

const VERTEX = `
void main() {
  gl_Position = vec4(gl_VertexID & 1, gl_VertexID >> 1, 0, 1) * vec4(4, 4, 0, 1) - vec4(1, 1, 0, 0);
}`

/** The twin of paintHeat. */
const FRAGMENT = `
precision highp usampler2D;
uniform usampler2D cells;
uniform sampler2D palette;
uniform vec2 start;
uniform vec2 perPixel;
uniform ivec2 size;
uniform float height;
uniform int centre;
uniform vec3 background;
out vec4 color;
void main() {
  vec2 pixel = vec2(floor(gl_FragCoord.x), height - 1.0 - floor(gl_FragCoord.y));
  ivec2 first = ivec2(floor(start + (pixel + 0.5) * perPixel));
  ivec2 next = ivec2(floor(start + (pixel + 1.5) * perPixel));
  ivec2 past = first + 1;
  for (int i = 0; i < 2; i++) {
    if (perPixel[i] > 1.0) {
      first[i] = int(floor(start[i] + pixel[i] * perPixel[i]));
      past[i] = int(ceil(start[i] + (pixel[i] + 1.0) * perPixel[i]));
    } else if (perPixel[i] * ${GAP_FROM_PIXELS}.0 <= 1.0 && next[i] != first[i]) {
      color = vec4(background, 1.0);
      return;
    }
    first[i] = clamp(first[i], 0, size[i] - 1);
    past[i] = clamp(past[i], first[i] + 1, size[i]);
  }
  uvec2 shown = uvec2(0u);
  int distance = -1;
  for (int row = first.y; row < past.y; row++) {
    for (int column = first.x; column < past.x; column++) {
      uvec2 cell = texelFetch(cells, ivec2(column, row), 0).rg;
      int rank = cell.r == 0u ? 0 : 1 + abs(int(cell.r) - centre) + (cell.g == 0u ? 512 : 0);
      if (rank > distance) {
        distance = rank;
        shown = cell;
      }
    }
  }
  vec3 full = texelFetch(palette, ivec2(int(shown.r), 0), 0).rgb;
  color = vec4(shown.g == 0u ? full : mix(background, full, ${DIMMED}), 1.0);
}`

export class HeatPainter {
  private readonly program: Program
  private generation = 0
  private array: WebGLVertexArrayObject | null = null
  private cellTexture: WebGLTexture | null = null
  private paletteTexture: WebGLTexture | null = null
  private cells: HeatCells | null = null
  private palette: Uint8Array | null = null

  constructor(private readonly context: GlContext) {
    this.program = new Program(context, VERTEX, FRAGMENT)
  }

  /** Whether a map of this size fits into a texture. */
  fits(columns: number, rows: number): boolean {
    return Math.max(columns, rows) <= this.context.gl.getParameter(this.context.gl.MAX_TEXTURE_SIZE)
  }

  /** Draws onto the whole canvas. Cells and palettes are uploaded when they are other objects than before. */
  draw(cells: HeatCells, window: Rect, { palette, background, centre }: HeatStyle): void {
    const { gl, screen } = this.context
    if (this.context.isLost) return
    this.makeAgain()
    this.context.bind(screen)
    this.program.use()
    gl.bindVertexArray(this.array)
    gl.disable(gl.BLEND)
    gl.activeTexture(gl.TEXTURE0)
    gl.bindTexture(gl.TEXTURE_2D, this.cellTexture)
    if (this.cells !== cells) {
      gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1)
      const { columns, rows, bytes } = cells
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RG8UI, columns, rows, 0, gl.RG_INTEGER, gl.UNSIGNED_BYTE, bytes)
      gl.pixelStorei(gl.UNPACK_ALIGNMENT, 4)
      this.cells = cells
    }
    gl.activeTexture(gl.TEXTURE1)
    gl.bindTexture(gl.TEXTURE_2D, this.paletteTexture)
    if (this.palette !== palette) {
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, 256, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, palette)
      this.palette = palette
    }
    const { program } = this
    gl.uniform1i(program.at('cells'), 0)
    gl.uniform1i(program.at('palette'), 1)
    gl.uniform2f(program.at('start'), window.x0, window.y0)
    gl.uniform2f(
      program.at('perPixel'),
      (window.x1 - window.x0) / screen.width,
      (window.y1 - window.y0) / screen.height,
    )
    gl.uniform2i(program.at('size'), cells.columns, cells.rows)
    gl.uniform1f(program.at('height'), screen.height)
    gl.uniform1i(program.at('centre'), centre)
    gl.uniform3f(program.at('background'), background[0] / 255, background[1] / 255, background[2] / 255)
    gl.drawArrays(gl.TRIANGLES, 0, 3)
    gl.bindVertexArray(null)
  }

  /** After a lost context everything is made and uploaded again. */
  private makeAgain(): void {
    const { gl, generation } = this.context
    if (this.generation === generation) return
    this.generation = generation
    this.array = gl.createVertexArray()
    this.cellTexture = this.makeTexture()
    this.paletteTexture = this.makeTexture()
    this.cells = null
    this.palette = null
  }

  private makeTexture(): WebGLTexture | null {
    const { gl } = this.context
    const texture = gl.createTexture()
    gl.bindTexture(gl.TEXTURE_2D, texture)
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST)
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST)
    return texture
  }
}

/** Cells in reading order, two bytes each: level (0: nothing known) and whether it is dimmed. */
export interface HeatCells {
  columns: number
  rows: number
  bytes: Uint8Array
}

export interface HeatStyle {
  /** 256 colours by level, 4 bytes each. */
  palette: Uint8Array
  /** What dimmed cells fade to and what lies between large cells. */
  background: readonly [number, number, number]
  /** The level of no interest: 0 where more is worse, the middle of a diverging scale. */
  centre: number
}

/** Cells [first, past) that a pixel shows, and whether it is the line behind a cell. */
export function cellsOfPixel(pixel: number, start: number, perPixel: number, count: number): [number, number, boolean] {
  const inside = (cell: number): number => Math.max(0, Math.min(count - 1, cell))
  if (perPixel > 1) {
    const first = inside(Math.floor(start + pixel * perPixel))
    return [first, Math.max(first + 1, inside(Math.ceil(start + (pixel + 1) * perPixel) - 1) + 1), false]
  }
  const cell = Math.floor(start + (pixel + 0.5) * perPixel)
  const next = Math.floor(start + (pixel + 1.5) * perPixel)
  return [inside(cell), inside(cell) + 1, perPixel * GAP_FROM_PIXELS <= 1 && next !== cell]
}

/** Fills width × height pixels (RGBA as little-endian words). */
export function paintHeat(
  words: Uint32Array,
  width: number,
  height: number,
  { columns, rows, bytes }: HeatCells,
  { x0, x1, y0, y1 }: Rect,
  { palette, background, centre }: HeatStyle,
): void {
  const back = packed(background[0], background[1], background[2])
  const colours = new Uint32Array(512)
  for (let level = 0; level < 256; level++) {
    const rgb = [0, 1, 2].map((part) => palette[4 * level + part])
    const dimmed = rgb.map((part, i) => Math.round(background[i] + (part - background[i]) * DIMMED))
    colours[2 * level] = packed(rgb[0], rgb[1], rgb[2])
    colours[2 * level + 1] = packed(dimmed[0], dimmed[1], dimmed[2])
  }
  const across = Array.from({ length: width }, (_, x) => cellsOfPixel(x, x0, (x1 - x0) / width, columns))
  for (let y = 0; y < height; y++) {
    const [top, bottom, isRowGap] = cellsOfPixel(y, y0, (y1 - y0) / height, rows)
    for (let x = 0; x < width; x++) {
      const [left, right, isColumnGap] = across[x]
      if (isRowGap || isColumnGap) {
        words[y * width + x] = back
        continue
      }
      let shown = 0
      let distance = -1
      for (let row = top; row < bottom; row++) {
        for (let at = 2 * (row * columns + left), end = 2 * (row * columns + right); at < end; at += 2) {
          const level = bytes[at]
          // A brushed cell takes precedence over a dimmed one, and any value over none.
          const rank = level === 0 ? 0 : 1 + Math.abs(level - centre) + (bytes[at + 1] ? 0 : 512)
          if (rank > distance) {
            distance = rank
            shown = 2 * level + bytes[at + 1]
          }
        }
      }
      words[y * width + x] = colours[shown]
    }
  }
}

function packed(r: number, g: number, b: number): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
}
