"""The kinds of values in a report.

`str` of a value returns a text for people (`12.30 us`, `10.30%`). An attribute of the value contains the exact
number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from counterpoint._visible import visible

__all__ = ["Count", "Duration", "Metric", "Percent", "Ratio", "Row", "Text"]


@dataclass(frozen=True)
class Duration:
    """A time in microseconds."""

    microseconds: float

    def __str__(self) -> str:
        return f"{self.microseconds:.2f} us"

    def __float__(self) -> float:
        return float(self.microseconds)


@dataclass(frozen=True)
class Count:
    """A whole number, for example of calls, events or bytes."""

    value: int

    def __str__(self) -> str:
        return str(self.value)

    def __int__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return float(self.value)


@dataclass(frozen=True)
class Percent:
    """A percentage: 12.5 means one eighth."""

    percent: float

    def __str__(self) -> str:
        return f"{self.percent:.2f}%"

    def __float__(self) -> float:
        return float(self.percent)


@dataclass(frozen=True)
class Ratio:
    """The quotient of two numbers of the same unit."""

    ratio: float

    def __str__(self) -> str:
        return f"{self.ratio:.2g}"

    def __float__(self) -> float:
        return float(self.ratio)


@dataclass(frozen=True)
class Text:
    """A text."""

    string: str

    def __str__(self) -> str:
        return visible(self.string)


Metric = Union[Duration, Count, Percent, Ratio, Text]
"""A value of any of the five kinds."""


Row = dict[str, Optional[Metric]]
"""One call, or one line of totals, as a map from column to value. A value that was asked for but not measured
is `None`."""
