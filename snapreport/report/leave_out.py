"""The optional parts of a report, in the order in which a size limit removes them.

The least important is first. Never removed: every allocation with its size, birth, end, stack and category, and so all
totals, the peak, and its stacks.
"""

from __future__ import annotations

from msgspec import Struct

from snapreport.number_format import size_text
from snapreport.packing.columns import Encoded, varints_of_zero


class Part(Struct, frozen=True):
    """A part that can be omitted. ``description``: its name for readers.

    ``sections``: sections to remove, by the end of their name. ``columns``: columns whose values become 0, by their
    name without the device. ``keys``: related manifest entries of the device, and their new values.
    """

    description: str
    sections: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    keys: tuple[tuple[str, object], ...] = ()


PARTS = (
    Part("the profiler's trace", sections=(".activities",), keys=(("activities", None),)),
    Part("lines of source", sections=("source",)),
    Part("who freed each allocation", columns=("free_stack",)),
    Part(
        "compile contexts and user metadata",
        columns=("context", "metadata"),
        keys=(("contexts", [""]), ("metadata", [""])),
    ),
    Part(
        "modules, shapes and dtypes, and what autograd saves",
        columns=("module", "shape", "dtype", "saved_by"),
        keys=(("modules", [""]), ("shapes", [""]), ("dtypes", [""]), ("grad_fns", [""])),
    ),
    Part("when each free was requested", columns=("requested",)),
    Part("the time of each event", sections=(".times",), keys=(("time0", None),)),
    Part("memory pools and streams of allocations", columns=("pool", "stream")),
    Part("addresses of allocations", columns=("addr_hi", "addr_lo")),
)


class LeftOut(Struct, frozen=True):
    """The parts to omit. ``limit``, ``full``: bytes allowed, and bytes of the complete report."""

    parts: tuple[Part, ...] = ()
    limit: int = 0
    full: int = 0

    def has_section(self, name: str) -> bool:
        """Whether a section is included."""
        return not any(name.endswith(section) for part in self.parts for section in part.sections)

    def column(self, encoded: list[Encoded]) -> list[Encoded]:
        """A column's parts unchanged, or a constant 0 of the same length."""
        head = encoded[0]
        if head.name.partition(".")[2] not in self._columns:
            return encoded
        return [
            Encoded(head.name, head.dtype, head.count, "n", "c" if head.count else "v", varints_of_zero(head.count))
        ]

    def device(self, manifest: dict[str, object]) -> dict[str, object]:
        """A device's entry with what it lacks in ``left_out``: names of columns and sections."""
        if not self.parts:
            return manifest
        names = [name.removeprefix(".") for part in self.parts for name in (*part.sections, *part.columns)]
        return {**manifest, **{key: value for part in self.parts for key, value in part.keys}, "left_out": names}

    @property
    def sentence(self) -> str:
        """What is missing and how to include it; "" if nothing is."""
        if not self.parts:
            return ""
        *others, last = [part.description for part in self.parts]
        description = f"{', '.join(others)} and {last}" if others else last
        return (
            f"left out to fit {size_text(self.limit)}: {description}; all of it takes {size_text(self.full)} "
            f"(--max-size {self.full})"
        )

    @property
    def manifest(self) -> dict[str, object]:
        """The report's own manifest entry."""
        descriptions = [part.description for part in self.parts]
        return (
            {"left_out": {"limit": self.limit, "full_bytes": self.full, "words": descriptions}} if descriptions else {}
        )

    @property
    def _columns(self) -> set[str]:
        return {column for part in self.parts for column in part.columns}


def worth_leaving_out(part: Part, columns: dict[str, list[list[Encoded]]]) -> bool:
    """Whether a report is smaller without the part. ``columns``: section → encoded columns."""
    if any(name.endswith(section) for name in columns for section in part.sections):
        return True
    heads = (encoded[0] for section in columns.values() for encoded in section)
    return any(head.name.partition(".")[2] in part.columns and head.count > 0 and head.layout != "c" for head in heads)
