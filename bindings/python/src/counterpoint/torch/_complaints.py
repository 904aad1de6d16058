"""Writes lines on stderr about things that do not work. No function here raises an exception."""

from __future__ import annotations

import os


def told(error: BaseException) -> str:
    """Returns the type and the text of an error. If the error cannot be converted to text, returns
    only the type."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return type(error).__name__


def complain(line: str) -> None:
    """Writes a line to stderr, if that is possible."""
    try:
        from counterpoint._visible import visible

        os.write(2, f"counterpoint: {visible(line)}\n".encode(errors="backslashreplace"))
    except BaseException:
        pass
