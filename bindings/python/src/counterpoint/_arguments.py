"""Checks the arguments that the packages have in common, and describes wrong ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Optional

from counterpoint.errors import ArgumentError


def described(value: object) -> str:
    """Describes a wrong argument for an error message."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}…"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def names_of(names: object, what: str) -> list[str]:
    """Returns the names of counters from a list, or from one text with commas."""
    if isinstance(names, str):
        names = [names]
    if isinstance(names, (bytes, Mapping)) or not isinstance(names, Iterable):
        raise ArgumentError(f"{what} must be a list of names, not {described(names)}")
    found = list(names)
    for name in found:
        if not isinstance(name, str):
            raise ArgumentError(f"{what} must be a list of names, but {described(name)} is not a name")
        if not name.strip() or not name.isprintable():
            raise ArgumentError(f"{what}: {name!r} is not the name of a counter")
    return found


def place(output: object) -> Optional[str]:
    """Returns the directory for a profile."""
    if output is None:
        return None
    if not isinstance(output, (str, bytes, os.PathLike)):
        raise ArgumentError(f"output= must be the path of a directory, not {described(output)}")
    place = os.fsdecode(output)
    if not place or "\0" in place:
        raise ArgumentError(f"output= must be the path of a directory, not {place!r}")
    return place
