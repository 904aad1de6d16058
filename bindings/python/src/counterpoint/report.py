"""Reports about the calls of a model, in the formats of TVM's former profiler.

A report has three parts:

- `calls`: one row for each call, as a `dict` from column to `Metric`. If a row does not have a column, the
  key is absent. If a value could not be measured, it is `None`, which does not mean 0.
- `device_metrics`: a row of totals for each device (its `Name` is `Total`).
- `configuration`: facts about what was profiled, as a `dict` from name to `Metric`.

In addition to TVM's former format, a report has `losses` (data that is missing or inexact) and `notes`.

This module does not need TVM, so reports can be loaded and viewed on any machine.
"""

from __future__ import annotations

import csv as _csv
import io
import json as _json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional, Union

from counterpoint import _page, _table
from counterpoint._visible import visible
from counterpoint.errors import CounterpointError, ReportError, needs
from counterpoint.metrics import Count, Duration, Metric, Percent, Ratio, Row, Text

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["Count", "Duration", "Loss", "Metric", "Percent", "Ratio", "Report", "Row", "Text"]


@dataclass(frozen=True)
class Loss:
    """A way in which data was lost or is inexact, and how often it happened."""

    name: str
    count: int
    severity: str = ""
    explanation: str = ""

    def __str__(self) -> str:
        why = f": {self.explanation}" if self.explanation else ""
        return visible(f"{self.name} ({self.count}){why}")


@dataclass
class Report:
    """The calls of a profile. A report can be printed, saved and loaded. `str(report)` is the table."""

    calls: list[Row] = field(default_factory=list)
    device_metrics: dict[str, Row] = field(default_factory=dict)
    configuration: dict[str, Metric] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _recorded: Any = field(default=None, repr=False, compare=False)
    """The object that keeps the profile of this report, and whose `path` is the path of the profile.
    `None` if the report was loaded, or contains only a part of a profile."""

    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """Returns a table for people, with numbers in the format of the user's locale.

        `sort`: show the longest duration first. `aggregate`: show one line for all calls with the same op,
        shapes and device. In such a line, durations, counts and percentages are summed, ratios are averaged,
        and a text is empty if it is not the same in all calls. `col_sums`: add a line `Sum` after the calls.
        Below the calls, the table has a total for each device, the configuration, notes and losses.
        """
        return _table.text(self, sort=sort, aggregate=aggregate, col_sums=col_sums)

    def csv(self) -> str:
        """Returns CSV: a line with the names of the columns, and one line for each call, without totals. The
        columns are sorted by the bytes of their names. Texts are quoted, a missing value is empty, and lines
        end with a line feed."""
        columns = sorted({key for row in self.calls for key in row}, key=lambda key: key.encode())
        out = io.StringIO()
        _csv.writer(out, lineterminator="\n").writerow(columns)
        for row in self.calls:
            out.write(",".join(_csv_field(row.get(column)) for column in columns) + "\n")
        return out.getvalue()

    def json(self) -> str:
        """Returns the report as one line of JSON, which `from_json` can read. Missing values are left out."""
        document: dict[str, Any] = {
            "calls": [_row_to_json(row) for row in self.calls],
            "device_metrics": {name: _row_to_json(row) for name, row in self.device_metrics.items()},
            "configuration": _row_to_json(self.configuration),
        }
        if self.losses:
            document["losses"] = [vars(loss) for loss in self.losses]
        if self.notes:
            document["notes"] = self.notes
        return _json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def from_json(text: Union[str, bytes]) -> Report:
        """Reads a report that `json` or TVM's profiler (also over RPC) wrote.

        Unknown keys at the top level are ignored. Raises a `ReportError` if the text is not a report, or
        contains an unknown kind of metric.
        """
        if not isinstance(text, (str, bytes, bytearray)):
            raise ReportError(f"from_json reads the text of a report, not {type(text).__name__}")
        try:
            # With `strict=False`, strings may contain line feeds, which TVM did not escape.
            document = _json.loads(text, strict=False)
        except ValueError as error:
            raise ReportError(f"not a report: {error}") from None
        document = _mapping(document, "the report")
        calls = document.get("calls", [])
        devices = _mapping(document.get("device_metrics", {}), "device_metrics")
        return Report(
            calls=[_row_from_json(row, "calls") for row in _sequence(calls, "calls")],
            device_metrics={
                name: _row_from_json(row, f"device_metrics.{name}") for name, row in devices.items()
            },
            configuration={
                key: value
                for key, value in _row_from_json(
                    document.get("configuration", {}), "configuration"
                ).items()
                if value is not None
            },
            losses=[
                _loss_from_json(loss) for loss in _sequence(document.get("losses", []), "losses")
            ],
            notes=[str(note) for note in _sequence(document.get("notes", []), "notes")],
        )

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a `DataFrame` with one row for each call. A column that has only counts has the type
        `Int64`, in which a missing count is neither 0 nor NaN."""
        try:
            import pandas
        except ImportError as error:
            raise needs("pandas", error) from None
        columns = {}
        for name, kind in self._columns().items():
            values = [_plain(row.get(name)) for row in self.calls]
            dtype = {Count: "Int64", Text: "string"}.get(kind, "Float64")
            columns[name] = pandas.array(values, dtype=dtype)
        return pandas.DataFrame(columns)

    def to_arrow(self) -> pyarrow.Table:
        """Returns an Arrow table with one row for each call. Columns of counts are int64, columns of texts
        are strings, and all other columns are doubles. Missing values are null."""
        try:
            import pyarrow
        except ImportError as error:
            raise needs("pyarrow", error) from None
        types = {Count: pyarrow.int64(), Text: pyarrow.string()}
        columns = {
            name: pyarrow.array(
                [_plain(row.get(name)) for row in self.calls], types.get(kind, pyarrow.float64())
            )
            for name, kind in self._columns().items()
        }
        return pyarrow.table(columns)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """Returns HTML for a notebook: a frame with the page that `counterpoint report --html` writes, or a
        link if the page is too long. If there is no profile, because the report was loaded or describes only
        a part of a run, returns the table."""
        if self._recorded is None:
            return _page.text(str(self))
        try:
            return _page.frame(self._recorded.path)
        except (CounterpointError, OSError) as error:
            return _page.text(f"{visible(str(error))}\n\n{self}")

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the report, for example in another process, does not keep the profile.
        return {**self.__dict__, "_recorded": None}

    def _columns(self) -> dict[str, type]:
        """Returns the kind of each column of the calls, in the order of the table.

        A loaded report may have different kinds of numbers in a column; then all of them become doubles.
        Raises a `ReportError` if a column has both texts and numbers."""
        kinds: dict[str, set[type]] = {}
        for row in self.calls:
            for name, value in row.items():
                kinds.setdefault(name, set()).update(() if value is None else (type(value),))
        chosen: dict[str, type] = {}
        for name in _table.in_order(kinds):
            found = kinds[name]
            if Text in found and len(found) > 1:
                raise ReportError(f"column {name!r} has both texts and numbers")
            chosen[name] = next(iter(found)) if len(found) == 1 else Duration
        return chosen


_KEYS: dict[type, str] = {
    Text: "string",
    Count: "count",
    Duration: "microseconds",
    Percent: "percent",
    Ratio: "ratio",
}


def _plain(value: Optional[Metric]) -> Union[str, int, float, None]:
    """Returns a metric's value as a plain number or text, or None if the value is missing."""
    if isinstance(value, Text):
        return value.string
    if isinstance(value, Count):
        return value.value
    return None if value is None else float(value)


def _csv_field(value: Optional[Metric]) -> str:
    if value is None:
        return ""
    if isinstance(value, Text):
        return '"' + value.string.replace('"', '""') + '"'
    return repr(_plain(value))


def _row_to_json(row: Mapping[str, Optional[Metric]]) -> dict[str, dict[str, Any]]:
    return {
        name: {_KEYS[type(value)]: _plain(value)} for name, value in row.items() if value is not None
    }


def _row_from_json(row: object, where: str) -> Row:
    return {
        name: _metric_from_json(value, f"{where}: {name}")
        for name, value in _mapping(row, where).items()
    }


def _metric_from_json(value: object, where: str) -> Metric:
    items = list(_mapping(value, where).items())
    if len(items) != 1:
        raise ReportError(f"{where}: a metric has one key, not {len(items)}")
    key, content = items[0]
    number = isinstance(content, (int, float)) and not isinstance(content, bool)
    if key == "string" and isinstance(content, str):
        return Text(content)
    if key == "count" and isinstance(content, int) and number:
        return Count(content)
    if key == "microseconds" and number:
        return Duration(float(content))
    if key == "percent" and number:
        return Percent(float(content))
    if key == "ratio" and number:
        return Ratio(float(content))
    if key in _KEYS.values():
        raise ReportError(f"{where}: {key} cannot be {content!r}")
    raise ReportError(f"{where}: unknown kind of metric {key!r}")


def _loss_from_json(value: object) -> Loss:
    loss = _mapping(value, "losses")
    name, count = loss.get("name"), loss.get("count")
    if not isinstance(name, str) or not isinstance(count, int):
        raise ReportError("losses: each has a name and a count")
    return Loss(name, count, str(loss.get("severity", "")), str(loss.get("explanation", "")))


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ReportError(f"{where}: not an object")
    return value


def _sequence(value: object, where: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ReportError(f"{where}: not a list")
    return value

