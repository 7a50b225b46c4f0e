"""The shapes of all JSON that snapreport prints, stores and reads back: one msgspec Struct for each object.

The JSON Schemas that ``snapreport schema`` prints, the validation of digests and the TypeScript types of the page are
made from them; ``python -m snapreport.schemas`` writes those types and the list of keys in ``docs/json.md`` again. A
struct's docstring is its description in the schema, an annotated field's description that of the field. Keys are in the
order of the fields.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec


def plain(document: Any) -> Any:
    """``document``, a Struct or a container of them, as dicts, lists and values that JSON has."""
    return msgspec.to_builtins(document, enc_hook=_plain_text)


def _plain_text(value: object) -> str:
    """A sentence without its parts: ``str`` of a subclass of ``str``."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")


def json_text(document: msgspec.Struct, indent: int | None = 1) -> str:
    """The document as the commands print it: ASCII, so that the bytes are the same whatever the terminal's encoding."""
    return json.dumps(plain(document), indent=indent, separators=None if indent else (",", ":"))
