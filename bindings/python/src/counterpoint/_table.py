"""Formats a report as a table for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional, Protocol

from counterpoint import _locale
from counterpoint._visible import visible
from counterpoint.metrics import Count, Duration, Metric, Percent, Ratio, Row, Text

FIRST = ("Name", "Duration (us)", "Percent", "Device", "Count", "Argument Shapes")
MISSING = "–"
# The column of durations that include nested calls. The nested calls also have rows of their own.
INCLUSIVE = "Total Duration (us)"


class Report(Protocol):
    """The parts of a report that a table needs."""

    calls: list[Row]
    device_metrics: dict[str, Row]
    configuration: dict[str, Metric]
    losses: list[Any]
    notes: list[str]


def in_order(columns: Iterable[str]) -> list[str]:
    """Returns the columns in the order of the table: a fixed list first, then all others by name."""
    there = set(columns)
    return [c for c in FIRST if c in there] + sorted(there.difference(FIRST))


def text(report: Report, *, sort: bool, aggregate: bool, col_sums: bool) -> str:
    """Returns the whole table, and the configuration, notes and losses below it."""
    calls = rows(report, sort=sort, aggregate=aggregate)
    lines = list(calls)
    if col_sums:
        lines += [{"Name": Text("----------")}, sums(calls)]
    lines += totals(report)
    found = {key for line in lines for key in line}
    columns = [*FIRST, *sorted(found.difference(FIRST))]
    numbers = _locale.of_user()
    cells = [[cell(line, column, numbers) for column in columns] for line in lines]
    widths = [max(map(len, column)) for column in zip(columns, *cells)]
    out = []
    for line in [columns, *cells]:
        first = line[0].ljust(widths[0])
        rest = (value.rjust(width) for value, width in zip(line[1:], widths[1:]))
        out.append("".join(value + "  " for value in (first, *rest)))
    out += ["", "Configuration", "-------------"]
    out += [f"{key}: {shown(value, numbers)}" for key, value in report.configuration.items()]
    for title, words in (("Notes", report.notes), ("Losses", [str(x) for x in report.losses])):
        if words:
            out += ["", title, "-" * len(title), *words]
    # Names and other texts may contain any character, even line breaks.
    return "\n".join(map(visible, out)) + "\n"


def rows(report: Report, *, sort: bool, aggregate: bool) -> list[Row]:
    """Returns the calls as rows of the table, merged and sorted if asked for."""
    calls = merged(report.calls) if aggregate else [dict(row) for row in report.calls]
    if sort:
        calls.sort(key=_duration, reverse=True)
    return calls


def totals(report: Report) -> list[Row]:
    """Returns one row of totals for each device."""
    return [{**row, "Name": Text("Total")} for row in report.device_metrics.values()]


def merged(calls: Iterable[Row]) -> list[Row]:
    """Merges all calls of the same op with the same arguments on the same device into one row."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in calls:
        op = _string(row, "Hash") or _string(row, "Name")
        key = (op, _string(row, "Argument Shapes"), _string(row, "Device"))
        groups.setdefault(key, []).append(row)
    result = []
    for members in groups.values():
        columns = dict.fromkeys(column for row in members for column in row)
        result.append(
            {
                column: _together([row[column] for row in members if column in row])
                for column in columns
            }
        )
    return result


def sums(calls: Iterable[Row]) -> Row:
    """Sums counts, durations and percentages. Inclusive times are not summed, because the same time
    is contained in several rows."""
    columns: dict[str, list[Optional[Metric]]] = {}
    for row in calls:
        for column, value in row.items():
            columns.setdefault(column, []).append(value)
    line: Row = {"Name": Text("Sum")}
    for column, values in columns.items():
        summable = column != INCLUSIVE and not any(isinstance(v, (Text, Ratio)) for v in values)
        if summable:
            line[column] = _together(values)
    return line


def cell(row: Row, column: str, numbers: _locale.Numbers) -> str:
    """Returns the text of a cell: empty if the row has no such column, and a dash if the value is missing."""
    return shown(row[column], numbers) if column in row else ""


def shown(value: Optional[Metric], numbers: _locale.Numbers) -> str:
    """Returns a value as text, rounded and without its unit."""
    if isinstance(value, Duration):
        return numbers.fixed(value.microseconds, 2)
    if isinstance(value, Percent):
        return numbers.fixed(value.percent, 2)
    if isinstance(value, Ratio):
        return numbers.significant(value.ratio, 2)
    if isinstance(value, Count):
        return numbers.whole(value.value)
    return MISSING if value is None else one_line(value.string)


def one_line(text: str) -> str:
    """Escapes characters that are not printable, so that a name cannot break the table or the terminal."""
    return visible("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text))


def _together(values: list[Optional[Metric]]) -> Optional[Metric]:
    """Combines the values of a column. If a value is missing, or the kinds of values differ, the result is
    None."""
    if all(isinstance(value, Count) for value in values):
        return Count(sum(value.value for value in values if isinstance(value, Count)))
    if all(isinstance(value, Duration) for value in values):
        return Duration(sum(value.microseconds for value in values if isinstance(value, Duration)))
    if all(isinstance(value, Percent) for value in values):
        return Percent(sum(value.percent for value in values if isinstance(value, Percent)))
    if all(isinstance(value, Ratio) for value in values):
        ratios = [value.ratio for value in values if isinstance(value, Ratio)]
        return Ratio(sum(ratios) / len(ratios))
    if all(isinstance(value, Text) for value in values):
        return values[0] if all(value == values[0] for value in values) else Text("")
    return None


def _string(row: Row, column: str) -> str:
    value = row.get(column)
    return value.string if isinstance(value, Text) else ""


def _duration(row: Row) -> float:
    value = row.get("Duration (us)")
    return value.microseconds if isinstance(value, Duration) else 0.0
