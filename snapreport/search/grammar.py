"""The query language: text in, a tree of terms out. The page's twin is ``static/src/search/grammar.ts``; both give the
same trees and the same errors, and the tests compare them.

    query = [any]
    any   = all {"OR" all}                        OR binds less than AND
    all   = term {["AND"] term}                   adjacent terms must all match
    term  = "-" term | "(" any ")" | field op value | word | "quoted words"
    op    = ":" | "=" | ">" | ">=" | "<" | "<="   ranges are values: a..b, a.., ..b
    value = what the field takes | "step" number  in freed-in and live, with or without quotes

``OR`` and ``AND`` are operators only in capitals; in lower case, between terms, they are errors. Inside quotes nothing
is special, and ``""`` stands for one quote. A "(" opens a group only at the beginning of a term; inside a word,
everything up to its ")" belongs to the word, so that ``operator()(int, float)`` is one word. ``name::more`` is a word.
"""

from __future__ import annotations

import re

from msgspec import Struct

from snapreport.errors import QueryError
from snapreport.search.fields import Test, fold, is_quantity, read_value, text_of
from snapreport.vocabulary import QUERY_ERRORS, QUERY_FIELDS, QUERY_OPERATORS

MAX_LENGTH = 4000
MAX_DEPTH = 100
BLANKS = " \t\n\r\f\v\u00a0"
_FIELD = re.compile(r"([A-Za-z_]{2,}|[A-Za-z]+-[A-Za-z]+)(>=|<=|:(?!:)|=|>|<)")
_STEP = re.compile(rf"[Ss][Tt][Ee][Pp][{BLANKS}]+(-?[0-9][0-9,_.]*)(?=[{BLANKS})]|$)")
_COMPARED = re.compile(r"([A-Za-z_]{2,}|[A-Za-z]+-[A-Za-z]+)(!=|<>|==|!:|=>|=<|=~|~=|~)")
_APART = re.compile(
    rf"([A-Za-z_]{{2,}}|[A-Za-z]+-[A-Za-z]+)[{BLANKS}]+(!=|<>|==|!:|=>|=<|=~|~=|~|>=|<=|:|=|>|<)([{BLANKS}]*)"
)
_SUGGESTED_OPERATOR = {"==": ":", "=>": ">=", "=<": "<=", "=~": ":", "~=": ":", "~": ":"}
_EXCLUDES = ("!=", "<>", "!:")
_JOINED = re.compile(r"[\w)]+(\|\|?|&&)[\w(]", re.ASCII)


class Term(Struct, frozen=True):
    """``field``: "" for bare words. ``at``, ``length``: the term's position in the query, in characters."""

    field: str
    test: Test
    at: int
    length: int


class Not(Struct, frozen=True):
    inner: Node


class AllOf(Struct, frozen=True):
    """True where every part is true; without parts, true everywhere."""

    parts: tuple[Node, ...]


class AnyOf(Struct, frozen=True):
    """True where any part is true."""

    parts: tuple[Node, ...]


Node = Term | Not | AllOf | AnyOf


def parse(query: str) -> Node:
    """The tree of a query; an empty one is ``AllOf(())``. Raises :class:`QueryError` with the place of an error."""
    if len(query) > MAX_LENGTH:
        raise _error("too_long", MAX_LENGTH, len(query) - MAX_LENGTH, most=MAX_LENGTH)
    return _Parser(query).query()


def _error(error: str, at: int, length: int, /, **values: object) -> QueryError:
    return QueryError(QUERY_ERRORS[error].format(**values), at, length)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.partner = _partners(text)

    def query(self) -> Node:
        self._blanks()
        if self.at == len(self.text):
            return AllOf(())
        node = self._any()
        if self.at < len(self.text):
            raise _error("unopened", self.at, 1)
        return node

    def _any(self) -> Node:
        parts = [self._all()]
        while self._operator() == "OR":
            self.at += 2
            parts.append(self._all("OR", self.at - 2))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all(self, after: str = "", after_at: int = 0) -> Node:
        """Terms up to the end, an OR or a ")". ``after``: the preceding operator, which needs a term."""
        parts: list[Node] = []
        while True:
            self._blanks()
            operator = self._operator()
            if operator == "AND" and parts:
                after, after_at = operator, self.at
                self.at += 3
                self._blanks()
                operator = self._operator()
                if self._at_end() or operator:
                    raise _error("sides", after_at, 3, operator=after)
            if self._at_end() or operator == "OR":
                break
            if operator:
                raise _error("sides", self.at, 3, operator=operator)
            parts.append(self._term())
        if parts:
            return parts[0] if len(parts) == 1 else AllOf(tuple(parts))
        if after:
            raise _error("sides", after_at, len(after), operator=after)
        if self._operator() == "OR":
            raise _error("sides", self.at, 2, operator="OR")
        raise _error("empty_group" if self.depth else "unopened", self.at, 1)

    def _other_operator(self) -> None:
        """Raises :class:`QueryError` for what other query languages would have here, and say what to write instead."""
        text, at = self.text, self.at
        word = text[at : self._word_end(at)]
        if word in QUERY_OPERATORS and not self._is_alone(word):
            raise _error("operator", at, len(word), operator=word, instead=QUERY_OPERATORS[word])
        if word.startswith("!"):
            raise _error("operator", at, 1, operator="!", instead=f"-{word[1:] or 'term'}")
        found = _COMPARED.match(text, at)
        if found and (name := found[1].lower()) in QUERY_FIELDS:
            op, value = found[2], text[found.end() : self._word_end(found.end())]
            if op in ("=>", "=<") and "text" in QUERY_FIELDS[name]:  # func=<module>
                return
            raise _error(
                "operator", found.start(2), len(op), operator=op, instead=_suggested_comparison(name, op, value)
            )
        apart = _APART.match(text, at)
        if apart and (name := apart[1].lower()) in QUERY_FIELDS:
            op, value = apart[2], text[apart.end() : self._word_end(apart.end())]
            # A word behind one that is named like a field may begin so: line <module>.
            if apart[3] or apart.end() == len(text) or is_quantity(value):
                raise _error(
                    "apart", apart.start(2), len(op), operator=op, instead=_suggested_comparison(name, op, value)
                )
        joined = _JOINED.match(word)
        if joined:
            op = joined[1]
            raise _error(
                "operator", at + joined.start(1), len(op), operator=op, instead=f"{QUERY_OPERATORS[op]} between blanks"
            )

    def _is_alone(self, word: str) -> bool:
        """Whether and, or, not in lower case do not join terms, as while somebody writes "or" of "order"."""
        before, after = self.text[: self.at], self.text[self.at + len(word) :]
        joins = after.strip(f"{BLANKS})") and (word == "not" or before.strip(f"{BLANKS}(-"))
        return word.islower() and not joins

    def _term(self) -> Node:
        text, begin = self.text, self.at
        signs = 0
        while self.at < len(text) and text[self.at] == "-":
            self.at += 1
            signs += 1
        if signs and (self._at_end() or text[self.at] in BLANKS):
            raise _error("minus", begin, signs)
        self._other_operator()
        if text[self.at] == "(":
            node = self._group()
        elif text[self.at] == '"':
            start = self.at
            words = self._quoted()
            node = Term("", text_of(words, is_quoted=True), start, self.at - start)
        else:
            node = self._field() or self._word()
        return Not(node) if signs % 2 else node

    def _group(self) -> Node:
        opened = self.at
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _error("depth", opened, 1, most=MAX_DEPTH)
        self.at += 1
        self._blanks()
        if self.at == len(self.text):
            raise _error("unclosed_group", opened, 1)
        node = self._any()
        if self.at == len(self.text):
            raise _error("unclosed_group", opened, 1)
        self.at += 1
        self.depth -= 1
        return node

    def _field(self) -> Node | None:
        """The term ``field op value``, or None if the next token is a word."""
        found = _FIELD.match(self.text, self.at)
        if not found:
            return None
        name, op = found[1].lower(), found[2]
        start, value_at = self.at, found.end()
        if name not in QUERY_FIELDS:
            if "-" in name or (op != ":" and not is_quantity(self.text[value_at : self._word_end(value_at)])):
                return None
            known = ", ".join(QUERY_FIELDS)
            raise _error("no_field", start, len(found[1]), field=found[1], known=known)
        self.at = value_at
        if is_quoted := self.text.startswith('"', value_at):
            value = self._quoted()
            value_at += 1
        else:
            in_step = _STEP.match(self.text, value_at) if name in ("freed-in", "live") else None
            self.at = in_step.end() if in_step else self._word_end(value_at)
            value = self.text[value_at : self.at]
        if not value:
            raise _error("no_value", start, self.at - start, field=name)
        test = read_value(name, op, value, value_at, is_quoted)
        return Term(name, test, start, self.at - start)

    def _word(self) -> Node:
        start = self.at
        self.at = self._word_end(start)
        return Term("", text_of(self.text[start : self.at], is_quoted=False), start, self.at - start)

    def _quoted(self) -> str:
        """The text between quotes; continues after them."""
        text, opened = self.text, self.at
        words = []
        self.at += 1
        while True:
            end = text.find('"', self.at)
            if end < 0:
                raise _error("unclosed_quote", opened, len(text) - opened)
            words.append(text[self.at : end])
            self.at = end + 1
            if not text.startswith('"', self.at):
                break
            words.append('"')
            self.at += 1
        if not fold("".join(words)).strip(BLANKS):
            raise _error("empty_quote", opened, self.at - opened)
        if not self._at_end() and text[self.at] not in BLANKS:
            raise _error("blank", self.at, 1)
        return "".join(words)

    def _word_end(self, at: int) -> int:
        text = self.text
        while at < len(text) and text[at] not in BLANKS and text[at] != ")":
            at = self.partner.get(at, at) + 1
        return at

    def _operator(self) -> str:
        """The operator at the current position, "OR" or "AND", otherwise ""."""
        for name in ("OR", "AND"):
            end = self.at + len(name)
            if self.text.startswith(name, self.at) and (end == len(self.text) or self.text[end] in BLANKS + "()"):
                return name
        return ""

    def _at_end(self) -> bool:
        return self.at == len(self.text) or self.text[self.at] == ")"

    def _blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in BLANKS:
            self.at += 1


def _suggested_comparison(name: str, op: str, value: str) -> str:
    """What to write in place of a comparison that the language does not have."""
    return f"-{name}:{value}" if op in _EXCLUDES else f"{name}{_SUGGESTED_OPERATOR.get(op, op)}{value}"


def _partners(text: str) -> dict[int, int]:
    """Position of each closed "(" → position of its ")"."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    for at, character in enumerate(text):
        if character == "(":
            opened.append(at)
        elif character == ")" and opened:
            partner[opened.pop()] = at
    return partner
