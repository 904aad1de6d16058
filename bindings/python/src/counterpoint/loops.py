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
    """Name in the printed table: a loop's variable or block, or a function's name."""
    parent: Optional[int]
    """The id of the loop or function around it."""
    depth: Optional[int]
    """Number of loops around this loop in its function; None for a function."""
    hits: int
    """Times entered."""
    timed_hits: Optional[int]
    """How many of the hits were timed."""
    iterations: Optional[int]
    """Iterations of all hits."""
    inclusive_ns: Optional[float]
    """Time of all hits, with everything inside."""
    inclusive_ns_95: Optional[float]
    """Half of the width of the 95 % interval of `inclusive_ns`; 0 if the time is exact."""
    self_ns: Optional[float]
    """Time of all hits without the instrumented loops directly inside. May be negative."""
    self_ns_95: Optional[float]
    """Half of the width of the 95 % interval of `self_ns`."""
    share: Optional[float]
    """The fraction of the parent's inclusive time that is spent here, from 0 to 1."""
    threads: int
    """Number of threads that entered this function or loop."""
    sampled_only: Optional[bool]
    """Whether the mean hit takes less than ten times as long as timing a hit."""


class LoopReport:
    """All instrumented functions and loops of a profile. `str(report)` is the table. Iterating over the
    report returns the rows, in the order of the tree."""

    def __init__(self, document: Mapping[str, Any], table: str) -> None:
        if document.get("schema") != _SCHEMA:
            raise ReportError(f"unknown schema {document.get('schema')!r} of counterpoint loops report")
        self.document = dict(document)
        """The whole JSON document of `counterpoint loops report`, which docs/loops.md describes."""
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
    """Returns the report about the instrumented functions and loops of a profile.

    `profile`: the directory of the profile. `raw`: the table shows the measured times, which include the cost
    of measuring. With or without `raw`, the times in `rows` exclude this cost if it is known."""
    path = os.fspath(profile)
    document = json.loads(run(["loops", "report", path, "--format", "json"]))
    table = run(["loops", "report", path, "--width", "120", "--top", "0", *(["--raw"] if raw else [])])
    return LoopReport(document, table)
