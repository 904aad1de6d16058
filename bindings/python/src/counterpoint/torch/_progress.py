"""Shows the progress of a step that takes longer than a second, in one line on a terminal, as the
program `counterpoint` does (`crates/cli/src/terminal/progress.rs`):

    counterpoint: compiling the bridge to PyTorch 2.15.0: 3 of 6 files, 12 s

The line goes to stderr. It is drawn again in the same place, and erased at the end. If stderr is a
file or a pipe, no line is written. No function here raises an exception.
"""

from __future__ import annotations

import os
import time
from typing import Optional

from counterpoint._visible import visible

SILENT_S = 1.0
"""How long a step must take before its line appears."""
REDRAW_S = 0.2
"""The line is drawn again after this time at the earliest."""
_ERASE = "\r\x1b[K"


class Progress:
    """A line on the terminal, which `end` erases."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since = time.monotonic()
        self._drawn: Optional[float] = None
        self._is_terminal = _is_terminal()

    def show(self, far: str) -> None:
        """Draws the line, with `far` as the text that says how far the step has progressed. Does
        nothing in the first second of the step, and directly after the line was drawn."""
        now = time.monotonic()
        is_early = now - self._since < SILENT_S
        if not self._is_terminal or is_early or (self._drawn is not None and now - self._drawn < REDRAW_S):
            return
        self._drawn = now
        line = visible(f"counterpoint: {self._what}: {far}, {now - self._since:.0f} s")
        # The terminal would break a line that is longer than its width into two, and the first of
        # these could not be erased.
        _write(_ERASE + line[: _columns() - 1])

    def end(self) -> None:
        """Erases the line."""
        if self._drawn is not None:
            self._drawn = None
            _write(_ERASE)


def _is_terminal() -> bool:
    try:
        return os.isatty(2) and os.environ.get("TERM") != "dumb"
    except OSError:
        return False


def _columns() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80


def _write(text: str) -> None:
    try:
        os.write(2, text.encode(errors="backslashreplace"))
    except OSError:
        pass
