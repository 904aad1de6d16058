"""Reads the report about the instrumented loops of a profile, which `counterpoint loops report` makes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

from counterpoint._program import run
from counterpoint._visible import visible
from counterpoint.errors import ReportError

_SCHEMA = "counterpoint.loops/1"


@dataclass(frozen=True)
class LoopRow:
    """A function or a loop. A value that is not known is None, never 0."""

    module: str
    """Identity of the module, 32 hexadecimal digits."""
    id: int
    """Its number in the module."""
    kind: Optional[str]
    """`function` or `loop`."""
    function: Optional[str]
    """Name of the function, or of the function that contains the loop."""
    name: Optional[str]
    """Name in the table: the variable or the block of a loop, the name of a function."""
    parent: Optional[int]
    """The id of the loop or function around it."""
    depth: Optional[int]
    """Loops around it in its function; None for a function."""
    hits: int
    """Times entered."""
    timed_hits: Optional[int]
    """How many of the hits were timed."""
    iterations: Optional[int]
    """Iterations of all hits."""
    inclusive_ns: Optional[float]
    """Time of all hits, with everything inside."""
    inclusive_ns_95: Optional[float]
    """Half of its 95 % interval; 0 if it is exact."""
    self_ns: Optional[float]
    """The same without the instrumented loops directly inside. May be negative."""
    self_ns_95: Optional[float]
    """Half of its 95 % interval."""
    share: Optional[float]
    """The part of the time of what is around it."""
    threads: int
    """How many threads entered it."""
    sampled_only: Optional[bool]
    """A hit takes less than ten times what timing it costs."""


class LoopReport:
    """All instrumented functions and loops of a profile. `str(report)` is the table. Iterating over the
    report returns the rows, in the order of the tree."""

    def __init__(self, document: Mapping[str, Any], table: str) -> None:
        if document.get("schema") != _SCHEMA:
            raise ReportError(f"unknown schema {document.get('schema')!r} of counterpoint loops report")
        self.document = dict(document)
        """Everything, as docs/loops.md describes it."""
        self._table = table
        self.rows = [
            _row(module["module"], row) for module in document["modules"] for row in module["rows"]
        ]

    def __iter__(self) -> Iterator[LoopRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        # The program has already replaced characters that are not visible; this is a second
        # safeguard.
        return "\n".join(map(visible, self._table.split("\n")))

    def find(self, function: str, name: Optional[str] = None) -> LoopRow:
        """Returns the function with this name, or the loop with this name in it.

        Raises LookupError if there is no such function or loop, or more than one."""
        wanted = function if name is None else name
        kind = "function" if name is None else "loop"
        found = [r for r in self.rows if (r.kind, r.function, r.name) == (kind, function, wanted)]
        if len(found) != 1:
            what = function if name is None else f"{function}:{name}"
            raise LookupError(f"{'no' if not found else len(found)} {kind}s are called {what}")
        return found[0]


def _row(module: str, row: Mapping[str, Any]) -> LoopRow:
    times = row["compensated"] or row["raw"] or {}
    inclusive, own = times.get("inclusive") or {}, times.get("self") or {}
    return LoopRow(
        module=module,
        inclusive_ns=inclusive.get("ns"),
        inclusive_ns_95=inclusive.get("ns_95"),
        self_ns=own.get("ns"),
        self_ns_95=own.get("ns_95"),
        share=times.get("share"),
        **{
            name: row[name]
            for name in (
                "id", "kind", "function", "name", "parent", "depth", "hits", "timed_hits",
                "iterations", "threads", "sampled_only",
            )
        },
    )  # fmt: skip


def read(profile: Union[str, os.PathLike[str]], *, raw: bool = False) -> LoopReport:
    """Returns the loops of a profile.

    `profile`: the directory of the profile. `raw`: the table shows the measured times, which include the cost
    of measuring. The times in `rows` are without this cost, if it is known."""
    path = os.fspath(profile)
    document = json.loads(run(["loops", "report", path, "--format", "json"]))
    table = run(["loops", "report", path, "--width", "120", "--top", "0", *(["--raw"] if raw else [])])
    return LoopReport(document, table)
