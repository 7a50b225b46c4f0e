// Where a column of numbers is greatest between two positions, in a few steps however long the range.

const FAN = 64

export class RangeMax {
  private readonly values: Float64Array
  /** layers[k][b]: first index of the greatest value in block b of 64^(k+1) values */
  private readonly layers: Int32Array[] = []

  constructor(values: Float64Array) {
    this.values = values
    let below: Int32Array | null = null
    let length = values.length
    while (length > FAN) {
      const blocks = Math.ceil(length / FAN)
      const layer = new Int32Array(blocks)
      for (let block = 0; block < blocks; block++) {
        const end = Math.min(length, (block + 1) * FAN)
        let best = below ? below[block * FAN] : block * FAN
        for (let i = block * FAN + 1; i < end; i++) {
          const candidate = below ? below[i] : i
          if (values[candidate] > values[best]) best = candidate
        }
        layer[block] = best
      }
      this.layers.push(layer)
      below = layer
      length = blocks
    }
  }

  /** First index of the greatest value in [from, to); `from` when the range is empty. */
  argmax(from: number, to: number): number {
    return this.search(-1, from, Math.min(to, this.values.length), from)
  }

  max(from: number, to: number): number {
    return this.values[this.argmax(from, to)]
  }

  /** Searches items [from, to) of a layer (-1: the values): its ragged ends here, the whole blocks between one layer up. */
  private search(depth: number, from: number, to: number, best: number): number {
    const { values } = this
    const layer = depth < 0 ? null : this.layers[depth]
    const firstBlock = Math.ceil(from / FAN)
    const lastBlock = Math.floor(to / FAN)
    const nested = firstBlock < lastBlock && depth + 1 < this.layers.length
    const headEnd = nested ? firstBlock * FAN : to
    for (let i = from; i < headEnd; i++) {
      const candidate = layer ? layer[i] : i
      if (values[candidate] > values[best]) best = candidate
    }
    if (!nested) return best
    best = this.search(depth + 1, firstBlock, lastBlock, best)
    for (let i = lastBlock * FAN; i < to; i++) {
      const candidate = layer ? layer[i] : i
      if (values[candidate] > values[best]) best = candidate
    }
    return best
  }
}
