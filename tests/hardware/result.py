"""Collects the results of the checks, and writes a page of text about them."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

OK, FAILED, ABSENT = "ok", "FAILED", "absent"


class Failed(Exception):
    """A check has failed. The text says what was expected and what was found."""


class Absent(Exception):
    """This machine lacks something. The text says what is lacking, and how to make the check elsewhere."""


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise Failed(text)


@dataclass
class Result:
    """The results of all checks in one run of run.py."""

    machine: list[str]
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def check(self, name: str) -> Iterator[list[str]]:
        """Runs the body of a `with` statement as one check. The texts that the body adds are shown beside the check's
        name."""
        said: list[str] = []
        try:
            yield said
            self.add(OK, name, "; ".join(said))
        except Absent as absent:
            self.add(ABSENT, name, str(absent))
        except Failed as failed:
            self.add(FAILED, name, "; ".join([*said, str(failed)]))
        except Exception as error:  # A check that raises another error has failed, too.
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})"
            self.add(FAILED, name, text)

    def add(self, status: str, name: str, said: str) -> None:
        self.rows.append((status, name, said))
        print(f"{status:6}  {name}{': ' if said else ''}{said}", flush=True)

    def figure(self, text: str) -> None:
        """Notes a measured number, which is not checked."""
        self.figures.append(text)
        print(f"        {text}", flush=True)

    def failures(self) -> int:
        return sum(status == FAILED for status, _, _ in self.rows)

    def page(self, head: list[str]) -> str:
        """Returns the page of text with all results."""
        width = max((len(name) for _, name, _ in self.rows), default=0)
        rows = [f"{status:6}  {name:{width}}  {said}".rstrip() for status, name, said in self.rows]
        count = {status: sum(row[0] == status for row in self.rows) for status in (OK, FAILED, ABSENT)}
        total = f"{count[OK]} ok, {count[FAILED]} failed, {count[ABSENT]} absent"
        parts = [[*head, *self.machine, total], rows, self.figures]
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"
