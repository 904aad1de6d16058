"""Checks the arguments that the packages for TVM and PyTorch share, and describes wrong arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Optional, Union

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
    """Returns a list of counter names. A single string, which may contain commas, becomes the only item of
    the list."""
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


def part_of(budget: Union[str, float, None]) -> Optional[float]:
    """Returns `budget` as a fraction: `"2%"` and 0.02 are the same."""
    if budget is None:
        return None
    value = -1.0
    if isinstance(budget, str):
        if re.fullmatch(r"[0-9]+(\.[0-9]*)?%", budget):
            value = float(budget[:-1]) / 100
    elif isinstance(budget, (int, float)) and not isinstance(budget, bool):
        value = float(budget)
    # The number 1 is refused, because the user may mean 1 %.
    if not 0 <= value <= 1 or (value == 1 and not isinstance(budget, str)):
        raise ArgumentError(
            'budget= must be a percentage such as "2%" or a part of the time such as 0.02, not'
            f" {described(budget)}"
        )
    return value


def place(output: object) -> Optional[str]:
    """Returns the path of the directory for a profile, or None if `output` is None."""
    if output is None:
        return None
    if not isinstance(output, (str, bytes, os.PathLike)):
        raise ArgumentError(f"output= must be the path of a directory, not {described(output)}")
    place = os.fsdecode(output)
    if not place or "\0" in place:
        raise ArgumentError(f"output= must be the path of a directory, not {place!r}")
    return place
