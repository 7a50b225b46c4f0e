// A set of whole numbers below a limit that finds the next member in a handful of steps.

/** Bits, and above them bits that say which words below have any set: 32 numbers a word, so four layers for a million. */
export class SuccessorSet {
  private readonly layers: Uint32Array[] = []

  constructor(limit: number) {
    let length = Math.max(1, limit)
    do {
      length = Math.ceil(length / 32)
      this.layers.push(new Uint32Array(length))
    } while (length > 1)
  }

  add(value: number): void {
    for (const layer of this.layers) {
      layer[value >>> 5] |= 1 << (value & 31)
      value >>>= 5
    }
  }

  remove(value: number): void {
    for (const layer of this.layers) {
      const word = value >>> 5
      layer[word] &= ~(1 << (value & 31))
      if (layer[word] !== 0) return
      value = word
    }
  }

  /** The smallest member at or above `value`; -1 where there is none. */
  next(value: number): number {
    const { layers } = this
    for (let depth = 0; depth < layers.length; depth++) {
      const word = value >>> 5
      if (word >= layers[depth].length) return -1
      const bits = (layers[depth][word] >>> (value & 31)) << (value & 31)
      if (bits !== 0) {
        let found = word * 32 + lowest(bits)
        while (depth-- > 0) found = found * 32 + lowest(layers[depth][found])
        return found
      }
      value = word + 1
    }
    return -1
  }

  /** The greatest member at or below `value`; -1 where there is none. */
  previous(value: number): number {
    const { layers } = this
    for (let depth = 0; depth < layers.length; depth++) {
      if (value < 0) return -1
      const word = value >>> 5
      const bits = (layers[depth][word] << (31 - (value & 31))) >>> (31 - (value & 31))
      if (bits !== 0) {
        let found = word * 32 + 31 - Math.clz32(bits)
        while (depth-- > 0) found = found * 32 + 31 - Math.clz32(layers[depth][found])
        return found
      }
      value = word - 1
    }
    return -1
  }
}

function lowest(bits: number): number {
  return 31 - Math.clz32(bits & -bits)
}
