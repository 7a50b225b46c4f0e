// The query language: text in, a tree of terms out. The twin of snapreport/search/grammar.py, which has the grammar; both
// give the same trees and the same errors, and the tests compare them.

import {
  type Field,
  FIELDS,
  fold,
  isField,
  isQuantity,
  textOf,
  type Op,
  QUERY_OPERATORS,
  type QueryError,
  queryError,
  readValue,
  type Test,
} from './fields'

/** `field`: '' for bare words. `at`, `length`: the term's place in the query. */
export interface Term {
  kind: 'term'
  field: Field | ''
  test: Test
  at: number
  length: number
}

export type Node =
  | Term
  | { kind: 'not'; inner: Node }
  /** True where every part is; without parts everywhere. */
  | { kind: 'all'; parts: Node[] }
  /** True where one of the parts is. */
  | { kind: 'any'; parts: Node[] }

export const MAX_LENGTH = 4000
const MAX_DEPTH = 100
export const BLANKS = ' \t\n\r\f\v\u00a0'
const FIELD = /([A-Za-z_]{2,}|[A-Za-z]+-[A-Za-z]+)(>=|<=|:(?!:)|=|>|<)/y
const STEP = /step[ \t\n\r\f\v\u00a0]+-?[0-9][0-9,_.]*(?=[ \t\n\r\f\v\u00a0)]|$)/iy
const COMPARED = /([A-Za-z_]{2,}|[A-Za-z]+-[A-Za-z]+)(!=|<>|==|!:|=>|=<|=~|~=|~)/y
const APART =
  /([A-Za-z_]{2,}|[A-Za-z]+-[A-Za-z]+)[ \t\n\r\f\v\u00a0]+(!=|<>|==|!:|=>|=<|=~|~=|~|>=|<=|:|=|>|<)([ \t\n\r\f\v\u00a0]*)/y
const INSTEAD: Record<string, string> = { '==': ':', '=>': '>=', '=<': '<=', '=~': ':', '~=': ':', '~': ':' }
const EXCLUDES = ['!=', '<>', '!:']
const JOINED = /^[\w)]+(\|\|?|&&)[\w(]/

/** The tree of a query; an empty one is `all` of nothing. Throws QueryError that says where it is bad. */
export function parse(query: string): Node {
  if (query.length > MAX_LENGTH)
    throw queryError('too_long', MAX_LENGTH, query.length - MAX_LENGTH, { most: MAX_LENGTH })
  return new Parser(query).query()
}

/** Whether a query is about times, which are not read with a large device. False for one that cannot be read. */
export function asksForTimes(query: string): boolean {
  try {
    return about(
      parse(query),
      ({ field, test }) => field === 'time' || (field === 'lifetime' && test.kind === 'range' && test.unit === 'us'),
    )
  } catch {
    return false
  }
}

function about(node: Node, is: (term: Term) => boolean): boolean {
  switch (node.kind) {
    case 'term':
      return is(node)
    case 'not':
      return about(node.inner, is)
    default:
      return node.parts.some((part) => about(part, is))
  }
}

class Parser {
  private at = 0
  private depth = 0
  private readonly partner: Map<number, number>

  constructor(private readonly text: string) {
    this.partner = partners(text)
  }

  query(): Node {
    this.blanks()
    if (this.at === this.text.length) return { kind: 'all', parts: [] }
    const node = this.any()
    if (this.at < this.text.length) throw queryError('unopened', this.at, 1)
    return node
  }

  private any(): Node {
    const parts = [this.all('', 0)]
    while (this.operator() === 'OR') {
      this.at += 2
      parts.push(this.all('OR', this.at - 2))
    }
    return parts.length === 1 ? parts[0] : { kind: 'any', parts }
  }

  /** Terms up to the end, an OR or a ")". `after`: the operator before, which needs a term. */
  private all(after: string, afterAt: number): Node {
    const parts: Node[] = []
    for (;;) {
      this.blanks()
      let operator = this.operator()
      if (operator === 'AND' && parts.length > 0) {
        const at = this.at
        this.at += 3
        this.blanks()
        operator = this.operator()
        if (this.atEnd() || operator) throw queryError('sides', at, 3, { operator: 'AND' })
      }
      if (this.atEnd() || operator === 'OR') break
      if (operator) throw queryError('sides', this.at, 3, { operator })
      parts.push(this.term())
    }
    if (parts.length > 0) return parts.length === 1 ? parts[0] : { kind: 'all', parts }
    if (after) throw queryError('sides', afterAt, after.length, { operator: after })
    if (this.operator() === 'OR') throw queryError('sides', this.at, 2, { operator: 'OR' })
    throw queryError(this.depth > 0 ? 'empty_group' : 'unopened', this.at, 1)
  }

  /** Throws QueryError for what other query languages would have here, and says what to write instead. */
  private otherOperator(): void {
    const { text, at } = this
    const word = text.slice(at, this.wordEnd(at))
    const refuse = (begin: number, operator: string, instead: string): QueryError =>
      queryError('operator', begin, operator.length, { operator, instead })
    if (Object.hasOwn(QUERY_OPERATORS, word) && !this.isAlone(word)) throw refuse(at, word, QUERY_OPERATORS[word])
    if (word.startsWith('!')) throw refuse(at, '!', `-${word.slice(1) || 'term'}`)
    COMPARED.lastIndex = at
    const found = COMPARED.exec(text)
    const name = found?.[1].toLowerCase()
    if (found && name !== undefined && isField(name)) {
      const op = found[2]
      const end = at + found[0].length
      const value = text.slice(end, this.wordEnd(end))
      if ((op === '=>' || op === '=<') && FIELDS[name].includes('text')) return // func=<module>
      throw refuse(end - op.length, op, insteadOf(name, op, value))
    }
    APART.lastIndex = at
    const apart = APART.exec(text)
    const field = apart?.[1].toLowerCase()
    if (apart && field !== undefined && isField(field)) {
      const [whole, , operator, blanks] = apart
      const end = at + whole.length
      const value = text.slice(end, this.wordEnd(end))
      const instead = insteadOf(field, operator, value)
      // A word behind one that is named like a field may begin so: line <module>.
      if (blanks || end === text.length || isQuantity(value))
        throw queryError('apart', end - blanks.length - operator.length, operator.length, { operator, instead })
    }
    const op = JOINED.exec(word)?.[1]
    if (op) throw refuse(at + word.indexOf(op), op, `${QUERY_OPERATORS[op]} between blanks`)
  }

  /** Whether and, or, not in lower case do not join terms, as while somebody writes "or" of "order". */
  private isAlone(word: string): boolean {
    const has = (text: string, but: string): boolean => [...text].some((one) => !(BLANKS + but).includes(one))
    const joins =
      has(this.text.slice(this.at + word.length), ')') && (word === 'not' || has(this.text.slice(0, this.at), '(-'))
    return /^[a-z]+$/.test(word) && !joins
  }

  private term(): Node {
    const { text } = this
    const begin = this.at
    while (text[this.at] === '-') this.at++
    const signs = this.at - begin
    if (signs > 0 && (this.atEnd() || BLANKS.includes(text[this.at]))) throw queryError('minus', begin, signs)
    this.otherOperator()
    let node: Node
    if (text[this.at] === '(') node = this.group()
    else if (text[this.at] === '"') {
      const at = this.at
      const words = this.quoted()
      node = { kind: 'term', field: '', test: textOf(words, true), at, length: this.at - at }
    } else node = this.field() ?? this.word()
    return signs % 2 === 1 ? { kind: 'not', inner: node } : node
  }

  private group(): Node {
    const opened = this.at
    if (++this.depth > MAX_DEPTH) throw queryError('depth', opened, 1, { most: MAX_DEPTH })
    this.at++
    this.blanks()
    if (this.at === this.text.length) throw queryError('unclosed_group', opened, 1)
    const node = this.any()
    if (this.at === this.text.length) throw queryError('unclosed_group', opened, 1)
    this.at++
    this.depth--
    return node
  }

  /** The term `field op value`, or null where there is a word. */
  private field(): Node | null {
    FIELD.lastIndex = this.at
    const found = FIELD.exec(this.text)
    if (!found) return null
    const start = this.at
    const name = found[1].toLowerCase()
    const op = found[2] as Op
    let valueAt = start + found[0].length
    if (!isField(name)) {
      if (name.includes('-') || (op !== ':' && !isQuantity(this.text.slice(valueAt, this.wordEnd(valueAt)))))
        return null
      const known = Object.keys(FIELDS).join(', ')
      throw queryError('no_field', start, found[1].length, { field: found[1], known })
    }
    this.at = valueAt
    const isQuoted = this.text[valueAt] === '"'
    let value: string
    if (isQuoted) {
      value = this.quoted()
      valueAt++
    } else {
      STEP.lastIndex = valueAt
      const inStep = (name === 'freed-in' || name === 'live') && STEP.test(this.text)
      this.at = inStep ? STEP.lastIndex : this.wordEnd(valueAt)
      value = this.text.slice(valueAt, this.at)
    }
    if (!value) throw queryError('no_value', start, this.at - start, { field: name })
    const test = readValue(name, op, value, valueAt, isQuoted)
    return { kind: 'term', field: name, test, at: start, length: this.at - start }
  }

  private word(): Node {
    const at = this.at
    this.at = this.wordEnd(at)
    return { kind: 'term', field: '', test: textOf(this.text.slice(at, this.at), false), at, length: this.at - at }
  }

  /** The text between quotes; continues after them. */
  private quoted(): string {
    const { text } = this
    const opened = this.at
    let words = ''
    this.at++
    for (;;) {
      const end = text.indexOf('"', this.at)
      if (end < 0) throw queryError('unclosed_quote', opened, text.length - opened)
      words += text.slice(this.at, end)
      this.at = end + 1
      if (text[this.at] !== '"') break
      words += '"'
      this.at++
    }
    if ([...fold(words)].every((character) => BLANKS.includes(character)))
      throw queryError('empty_quote', opened, this.at - opened)
    if (!this.atEnd() && !BLANKS.includes(text[this.at])) throw queryError('blank', this.at, 1)
    return words
  }

  private wordEnd(at: number): number {
    const { text } = this
    while (at < text.length && !BLANKS.includes(text[at]) && text[at] !== ')') at = (this.partner.get(at) ?? at) + 1
    return at
  }

  /** "OR" or "AND" where there is one, else "". */
  private operator(): string {
    for (const name of ['OR', 'AND']) {
      const end = this.at + name.length
      if (this.text.startsWith(name, this.at) && (end === this.text.length || `${BLANKS}()`.includes(this.text[end])))
        return name
    }
    return ''
  }

  private atEnd(): boolean {
    return this.at === this.text.length || this.text[this.at] === ')'
  }

  private blanks(): void {
    while (this.at < this.text.length && BLANKS.includes(this.text[this.at])) this.at++
  }
}

/** What to write in place of a comparison that the language does not have. */
function insteadOf(name: string, op: string, value: string): string {
  return EXCLUDES.includes(op) ? `-${name}:${value}` : `${name}${INSTEAD[op] ?? op}${value}`
}

/** Place of each "(" that is closed to the place of its ")". */
function partners(text: string): Map<number, number> {
  const partner = new Map<number, number>()
  const opened: number[] = []
  for (let at = 0; at < text.length; at++) {
    if (text[at] === '(') opened.push(at)
    else if (text[at] === ')' && opened.length > 0) partner.set(opened.pop()!, at)
  }
  return partner
}

/** A value as a query takes it. */
export function quoted(value: string): string {
  return /^[\w-]+$/.test(value) ? value : `"${value.replaceAll('"', '""')}"`
}
