// Where the recorded program's files are on the web: a recorder noted the commit and its remote.

export interface Repository {
  /** The folder of the working tree, as file names in stack traces begin. */
  root: string
  /** "https://host/owner/project/blob/<commit>" */
  url: string
}

/** A function from a frame's place to the address of its line; null for files outside of every working tree. */
export function lineAddress(repositories: readonly Repository[]): (filename: string, line: number) => string | null {
  // Longest first, as a working tree may be inside another.
  const known = repositories
    .filter(({ url }) => url.startsWith('https://'))
    .sort((a, b) => b.root.length - a.root.length)
  return (filename, line) => {
    const file = filename.replace(/\\/g, '/')
    const found = known.find(({ root }) => file.startsWith(`${root}/`))
    if (!found || line <= 0) return null
    const path = file.slice(found.root.length + 1).split('/')
    if (path.some((part) => part === '..' || part === '.' || part === '' || part === 'site-packages')) return null
    return `${found.url}/${path.map(encodeURIComponent).join('/')}#L${line}`
  }
}
