"""TypeScript types of the contracts that the page reads.

json-schema-to-typescript was compared: it needs Node and ten packages to regenerate, and a JSON Schema has no names for
the members of tuples.
"""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec
from msgspec import inspect as types

HEAD = "// Generated from snapreport/contracts: `python -m snapreport.schemas` writes this file again.\n"
WIDTH = 120
_PLAIN = {
    types.IntType: "number",
    types.FloatType: "number",
    types.StrType: "string",
    types.BoolType: "boolean",
    types.NoneType: "null",
    types.AnyType: "unknown",
}


def typescript(*roots: type[msgspec.Struct]) -> str:
    """The types of ``roots`` and of all that they contain, a type before those that it contains."""
    waiting: list[Any] = [types.type_info(root) for root in roots]
    written: dict[type, str] = {}
    while waiting:
        info = waiting.pop(0)
        if info.cls not in written:
            written[info.cls] = _struct(info, waiting)
    return HEAD + "".join(written.values())


def signatures(*roots: type[msgspec.Struct]) -> list[str]:
    """``Name: key type, key? type`` of ``roots`` and of all that they contain, each once, wrapped at :data:`WIDTH`."""
    waiting: list[Any] = [types.type_info(root) for root in roots]
    written: dict[type, str] = {}
    while waiting:
        info = waiting.pop(0)
        if info.cls in written:
            continue
        keys = [f"{field.encode_name}{_mark(field)} {_type(field.type, waiting)}" for field in info.fields]
        written[info.cls] = textwrap.fill(
            f"{info.cls.__name__}: {', '.join(keys)}",
            WIDTH,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return list(written.values())


def _mark(field: types.Field) -> str:
    """``?`` where the key may be missing."""
    is_unset = msgspec.NODEFAULT is field.default is field.default_factory
    return "?" if is_unset and not field.required else ""


def _struct(info: types.StructType, found: list[Any]) -> str:
    doc = _comment(" ".join((info.cls.__doc__ or "").replace("``", "`").split()), "")
    fields = [(field, *_with_description(field.type)) for field in info.fields]
    if info.array_like:
        inner = ", ".join(f"{field.encode_name}: {_type(kind, found)}" for field, kind, _ in fields)
        return f"\n{doc}export type {info.cls.__name__} = [{inner}]\n"
    lines = [f"\n{doc}export interface {info.cls.__name__} {{\n"]
    if info.tag is not None:
        lines.append(f"  {info.tag_field}: '{info.tag}'\n")
    for field, kind, description in fields:
        # "bytes" says nothing new of "peak_reserved_bytes".
        comment = "" if description in field.encode_name.split("_") else _comment(description, "  ")
        lines.append(f"{comment}  {field.encode_name}{_mark(field)}: {_type(kind, found)}\n")
    return "".join([*lines, "}\n"])


def _with_description(kind: types.Type) -> tuple[types.Type, str]:
    if isinstance(kind, types.Metadata):
        inner, description = _with_description(kind.type)
        return inner, (kind.extra_json_schema or {}).get("description", description)
    return kind, ""


def _comment(text: str, indent: str) -> str:
    """On one line, or on several."""
    if len(indent) + len(text) + 7 <= WIDTH:
        return f"{indent}/** {text} */\n" if text else ""
    start = f"{indent} * "
    return f"{indent}/**\n{textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=start)}\n{indent} */\n"


def _type(kind: types.Type, found: list[Any]) -> str:
    kind, _ = _with_description(kind)
    if isinstance(kind, types.StructType):
        found.append(kind)
        return kind.cls.__name__
    if isinstance(kind, types.UnionType):
        members = [_type(member, found) for member in kind.types if _name_of(member) != "UnsetType"]
        return " | ".join(sorted(members, key=lambda name: name == "null"))
    if isinstance(kind, types.LiteralType):
        return " | ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in kind.values)
    if isinstance(kind, (types.ListType, types.VarTupleType)):
        item = _type(kind.item_type, found)
        return f"({item})[]" if " | " in item and not item.endswith("[]") else f"{item}[]"
    if isinstance(kind, types.DictType):
        return f"Record<string, {_type(kind.value_type, found)}>"
    return _PLAIN[type(kind)]


def _name_of(kind: types.Type) -> str:
    return kind.cls.__name__ if isinstance(kind, types.CustomType) else ""
