"""Implements `counterpoint.load`, which opens a profile as tables.

```text
 counterpoint report --format json ───► ops, losses ─────────┐
 counterpoint export --format parquet ─► calls, loops, tracks ┼─► Table ─► Arrow, pandas
 activities/NAME/*.arrows ────────────► activities ──────────┘
```
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

from counterpoint import _page
from counterpoint._program import run
from counterpoint._visible import visible
from counterpoint.errors import CounterpointError, ReportError, needs

if TYPE_CHECKING:
    import pandas
    import pyarrow

_REPORT = "counterpoint.report/1"
_WIDTH = "120"


class Table:
    """A table of a profile, which is read when it is first needed. A value that is not known is
    null (`pandas.NA`), not 0."""

    def __init__(self, name: str, read: Callable[[], pyarrow.Table]) -> None:
        self._name = name
        self._read = read
        self._kept: Optional[pyarrow.Table] = None

    def to_arrow(self) -> pyarrow.Table:
        """Returns the table as a `pyarrow.Table`. This needs `pyarrow`."""
        if self._kept is None:
            self._kept = self._read()
        return self._kept

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the table as a `DataFrame` whose types allow missing values. Columns of texts that often
        repeat are categorical. This needs `pandas` and `pyarrow`."""
        arrow = _arrow()
        try:
            import pandas
        except ImportError as error:
            raise needs("pandas", error) from None
        types = {
            arrow.string(): pandas.StringDtype(),
            arrow.bool_(): pandas.BooleanDtype(),
            arrow.uint8(): pandas.UInt8Dtype(),
            arrow.uint32(): pandas.UInt32Dtype(),
            arrow.uint64(): pandas.UInt64Dtype(),
            arrow.int64(): pandas.Int64Dtype(),
            arrow.float64(): pandas.Float64Dtype(),
        }
        return self.to_arrow().to_pandas(types_mapper=types.get)

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def __repr__(self) -> str:
        table = self.to_arrow()
        return visible(f"{self._name}: {table.num_rows} rows of {', '.join(table.column_names)}")


class LoadedProfile:
    """A profile that `counterpoint run` or any other recording made. `print` shows the report. A notebook
    shows the page that `counterpoint report --html` writes."""

    def __init__(self, path: str) -> None:
        self.path = path
        """Its directory."""
        self._document: Optional[dict[str, Any]] = None
        self.ops = Table("ops", lambda: _table(self._rows()))
        """A row for each op, with the fields of `counterpoint report --format json` (docs/schema.md). A
        counter has two columns: its total in the column with its name, and its mean per call in the column
        with `/call` after the name. The ends of a value's interval are in columns with `_low` and `_high`
        after the value's name."""
        self.calls = Table("calls", lambda: self._exported("calls"))
        """A row for each recorded call, as `counterpoint export` writes it."""
        self.loops = Table("loops", lambda: self._exported("loops"))
        """A row for each instrumented loop and thread, as `counterpoint export --what loops` writes it."""
        self.tracks = Table("tracks", lambda: self._exported("tracks"))
        """A row for each sample of a time series."""
        self.activities = Table("activities", lambda: _activities(Path(self.path)))
        """A row for each event of an imported trace, of a plugin, or of PyTorch's profiler. The column
        `activities` has the path, relative to the profile, of the directory `activities/NAME/` that contains
        the event; docs/schema.md describes the directory."""
        self.losses = Table("losses", self._losses)
        """A row for each way in which something was lost or is inexact, with a `severity` and a `help`."""

    @property
    def document(self) -> dict[str, Any]:
        """The document that `counterpoint report --format json` prints."""
        if self._document is None:
            text = run(["report", self.path, "--format", "json", "--top", "0"], good=(0, 1))
            document = json.loads(text)
            if document.get("schema") != _REPORT:
                raise ReportError(f"unknown schema {document.get('schema')!r} of counterpoint report")
            self._document = document
        return self._document

    def html(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the profile's HTML page to a file that needs no other files."""
        _page.write(self.path, os.fspath(path))

    def __str__(self) -> str:
        text = run(["report", self.path, "--width", _WIDTH], good=(0, 1))
        return "\n".join(map(visible, text.rstrip("\n").split("\n")))

    def __repr__(self) -> str:
        return f"counterpoint.load({self.path!r})"

    def _repr_html_(self) -> str:
        try:
            return _page.frame(self.path)
        except (CounterpointError, OSError) as error:
            return _page.text(f"{visible(str(error))}\n\n{self}")

    def _rows(self) -> list[dict[str, Any]]:
        return [_flat(row) for row in self.document["rows"]]

    def _losses(self) -> pyarrow.Table:
        arrow = _arrow()
        text = ("name", "severity", "help", "errno_text")
        fields = [(name, arrow.string()) for name in text]
        fields += [("count", arrow.uint64()), ("errno", arrow.int64())]
        rows = self.document["losses"]
        return arrow.table({name: arrow.array([row.get(name) for row in rows], kind) for name, kind in fields})

    def _exported(self, what: str) -> pyarrow.Table:
        _arrow()
        import pyarrow.parquet

        with tempfile.TemporaryDirectory(prefix="counterpoint-load-") as folder:
            file = os.path.join(folder, "rows.parquet")
            run(["export", self.path, "--format", "parquet", "--what", what, "-o", file])
            # The file is not mapped into memory, because the file is removed when this function
            # returns.
            return pyarrow.parquet.read_table(file, memory_map=False)


def load(profile: Union[str, os.PathLike[str]]) -> LoadedProfile:
    """Implements `counterpoint.load`."""
    path = os.path.abspath(os.fspath(profile))
    if not os.path.isdir(path):
        raise ReportError(f"{path} is not a directory with a profile")
    loaded = LoadedProfile(path)
    # Without a manifest, the report is read now, so that a directory that is no profile raises an error at
    # once.
    if not os.path.isfile(os.path.join(path, "manifest.json")):
        loaded.document  # noqa: B018
    return loaded


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise needs("pyarrow", error) from None
    return pyarrow


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a row of the report to a row of a table, in which each column has a single value."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if name == "intervals":
            for of, interval in value.items():
                out[f"{of}_low"] = interval and interval["low"]
                out[f"{of}_high"] = interval and interval["high"]
        elif name == "counters":
            for counter in value:
                out[counter["name"]] = counter["total"]
                out[f"{counter['name']}/call"] = counter["per_call"]
        elif name == "metrics":
            for metric in value:
                out[metric["name"]] = metric["value"]
        elif name == "sampled":
            _add_sampled(out, row, value)
        elif name not in ("threads", "cpus", "passes"):
            out[name] = value
        elif name != "passes":
            out[name] = len(value)
    return out


def _add_sampled(out: dict[str, Any], row: Mapping[str, Any], sampled: Mapping[str, Any]) -> None:
    """Adds the columns for a profile that was recorded with a budget."""
    for name in ("timed_calls", "counted_calls", "effective_calls"):
        out[name] = sampled.get(name)
    estimated = {"calls": sampled.get("estimated_calls")}
    estimated |= {name: sampled.get(name) for name in ("total_ns", "mean_ns", "share")}
    estimated |= {c["name"]: c["sampled"] and c["sampled"]["total"] for c in row["counters"] if "sampled" in c}
    for name, of in estimated.items():
        exact = out.get(name) if name == "calls" else None
        # If the time that the recorder added is not known exactly, the row already has an interval.
        # That interval stays, because it is wider than the one in `sampled`.
        out.setdefault(f"{name}_low", of["low"] if of else exact)
        out.setdefault(f"{name}_high", of["high"] if of else exact)


def _table(rows: list[dict[str, Any]]) -> pyarrow.Table:
    """If a column has both integers and floats, all of its values become floats."""
    arrow = _arrow()
    columns: dict[str, list[Any]] = {}
    for row in rows:
        columns.update({name: [] for name in row if name not in columns})
    for name, values in columns.items():
        values += [row.get(name) for row in rows]
        if any(isinstance(value, float) for value in values):
            values[:] = [None if value is None else float(value) for value in values]
    return arrow.table({name: arrow.array(values) for name, values in columns.items()})


def _activities(profile: Path) -> pyarrow.Table:
    arrow = _arrow()
    fields = [
        ("activities", arrow.string()), ("form", arrow.string()), ("name", arrow.string()),
        ("category", arrow.string()), ("process", arrow.string()), ("thread", arrow.string()),
        ("time_ns", arrow.int64()), ("duration_ns", arrow.int64()), ("id", arrow.string()),
        ("args", arrow.string()), ("more", arrow.string()),
    ]  # fmt: skip
    schema = arrow.schema(fields)
    tables = [schema.empty_table()]
    for folder in sorted(profile.glob("activities/*")) + sorted(profile.glob("*/*/activities/*")):
        events = _stream(folder / "events.arrows")
        names, rows = _stream(folder / "names.arrows"), _stream(folder / "rows.arrows")
        if events is None or names is None or rows is None:
            continue
        texts = dict(zip(names["number"].to_pylist(), names["text"].to_pylist()))
        of_row = {row["number"]: (row["process"], row["thread"]) for row in rows.to_pylist()}
        found = events.to_pydict()
        count = events.num_rows
        places = [of_row.get(number, (None, None)) for number in found["row"]]
        columns = {
            **{name: found[name] for name in ("time_ns", "duration_ns", "id", "args", "more")},
            "activities": [folder.relative_to(profile).as_posix()] * count,
            "form": [chr(form) if form else None for form in found["form"]],
            "name": [texts.get(number) for number in found["name"]],
            "category": [texts.get(number) for number in found["category"]],
            "process": [process for process, _ in places],
            "thread": [thread for _, thread in places],
        }
        tables.append(arrow.table([arrow.array(columns[name], kind) for name, kind in fields], schema=schema))
    return arrow.concat_tables(tables)


def _stream(path: Path) -> Optional[pyarrow.Table]:
    """Returns a table of the complete batches in an Arrow stream, or None if the stream cannot be read. The
    stream ends early if the recorded process was killed."""
    import pyarrow.ipc

    try:
        with open(path, "rb") as file:
            reader = pyarrow.ipc.open_stream(file)
            batches = []
            try:
                batches.extend(iter(reader))
            except pyarrow.ArrowInvalid:
                pass
            return pyarrow.Table.from_batches(batches, reader.schema)
    except (OSError, pyarrow.ArrowInvalid):
        return None
