// What is made once and kept by key.

interface Kept<K, V> {
  get(key: K): V | undefined
  set(key: K, value: V): unknown
}

/** The value of a key, made where there is none yet. */
export function remembered<K, V>(kept: Kept<K, V>, key: K, make: () => V): V {
  let value = kept.get(key)
  if (value === undefined) {
    value = make()
    kept.set(key, value)
  }
  return value
}
