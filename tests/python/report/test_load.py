"""Tests `counterpoint.load`, which offers a profile as tables, and as a page in a notebook."""

import csv
import io
import json
import os
import pickle
import re
import subprocess
import sys
from html.parser import HTMLParser

import places
import pytest

import counterpoint
from counterpoint import _page, _program
from counterpoint.errors import CounterpointError
from counterpoint.report import Count, Duration, Report, Text

EVIL = "a<script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Returns the path of a profile. An `outer` of 100 us contains two calls of `matmul`, another thread
    has an op with an odd name, and a counter has two samples."""
    folder = tmp_path_factory.mktemp("load")
    slices = [("outer", 1, 0, 100), ("matmul", 1, 10, 30), ("matmul", 1, 50, 20), (EVIL, 2, 0, 7)]
    events = [
        {"ph": "X", "name": name, "cat": "cpu_op", "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": {"n": ts}}
        for name, tid, ts, dur in slices
    ]
    events += [
        {"ph": "C", "name": "memory", "pid": 1, "tid": 1, "ts": ts, "args": {"bytes": value}}
        for ts, value in ((0, 5.5), (60, 7.0))
    ]
    trace = folder / "trace.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    _program.run(["trace", "import", str(trace), "-o", str(folder / "x.cpt")])
    return str(folder / "x.cpt")


def test_the_example_of_the_page(path, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas")
    (tmp_path / "mlp.cpt").symlink_to(path, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    page = (places.ROOT / "docs/python.md").read_text()
    for code in re.findall(r"^```python\n(.*?)^```", page, re.S | re.M):
        exec(code, {})  # noqa: S102
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    # The two calls of `matmul` take 20 and 30 us.
    assert any(row[1:4] == ["matmul", "2", "50000.0"] for row in rows), rows
    assert any(row[:3] == ["matmul", "2.0", "25000.0"] and row[-1] == "30000.0" for row in rows), rows


def test_ops_are_those_of_the_report(path):
    pytest.importorskip("pyarrow")
    profile = counterpoint.load(path)
    ops = {row["op"]: row for row in profile.ops.to_arrow().to_pylist()}
    assert {name: row["calls"] for name, row in ops.items()} == {"outer": 1, "matmul": 2, EVIL: 1}
    assert {name: row["total_ns"] for name, row in ops.items()} == {"outer": 1e5, "matmul": 5e4, EVIL: 7e3}
    assert (ops["outer"]["self_ns"], ops["matmul"]["max_ns"]) == (5e4, 3e4)
    assert len(profile.ops) == 3 and profile.ops.to_arrow() is profile.ops.to_arrow()
    assert "\x1b" not in repr(profile.ops)
    assert [row["name"] for row in profile.losses.to_arrow().to_pylist()] == [
        loss["name"] for loss in profile.document["losses"]
    ]


def test_calls_and_samples_are_those_of_the_export(path):
    pytest.importorskip("pyarrow")
    profile = counterpoint.load(path)
    for what, table in (("calls", profile.calls), ("tracks", profile.tracks), ("loops", profile.loops)):
        text = _program.run(["export", path, "--format", "csv", "--what", what])
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        found = table.to_arrow()
        assert found.num_rows == len(rows) == {"calls": 4, "tracks": 2, "loops": 0}[what]
        for row, value in zip(rows, found.to_pylist()):
            assert list(row) == list(value)
            for name, cell in row.items():
                same = cell == "" if value[name] is None else type(value[name])(cell) == value[name]
                assert same, (what, name, cell, value[name])


def test_activities_are_the_events_of_the_trace(path):
    pytest.importorskip("pyarrow")
    rows = counterpoint.load(path).activities.to_arrow().to_pylist()
    assert [(row["form"], row["name"], row["duration_ns"]) for row in rows] == [
        ("X", "outer", 100_000), ("X", "matmul", 30_000), ("X", "matmul", 20_000), ("X", EVIL, 7_000),
        ("C", "memory", None), ("C", "memory", None),
    ]  # fmt: skip
    assert [json.loads(row["thread"]) for row in rows[:4]] == [1, 1, 1, 2]
    assert json.loads(rows[1]["args"]) == {"n": 10} and rows[1]["category"] == "cpu_op"
    assert rows[1]["time_ns"] - rows[0]["time_ns"] == 10_000


def test_missing_values_in_pandas(path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    profile = counterpoint.load(path)
    activities = profile.activities.to_pandas()
    assert str(activities["duration_ns"].dtype) == "Int64"
    assert activities["duration_ns"].isna().tolist() == [False] * 4 + [True] * 2
    ops = profile.ops.to_pandas().set_index("op")
    assert ops.loc["matmul", "total_ns"] == 5e4 and str(ops["total_ns"].dtype) == "Float64"
    assert ops["dispatches"].isna().all()
    assert isinstance(profile.calls.to_pandas(), pandas.DataFrame)


def test_a_missing_package_is_named(path):
    code = (
        "import sys; sys.modules['pyarrow'] = None; import counterpoint\n"
        f"try: counterpoint.load({path!r}).ops.to_pandas()\n"
        "except ImportError as error: print(error)"
    )
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert "this needs pyarrow" in done.stdout and "pip install pyarrow" in done.stdout, done.stderr


def test_print_is_the_report(path):
    text = str(counterpoint.load(path))
    assert text == _program.run(["report", path, "--width", "120"]).rstrip("\n")
    assert "matmul" in text and "\x1b" not in text


def test_what_is_not_a_profile(tmp_path):
    with pytest.raises(CounterpointError):
        counterpoint.load(tmp_path / "nothing")
    with pytest.raises(CounterpointError):
        counterpoint.load(tmp_path)


class Frame(HTMLParser):

    def __init__(self, page):
        super().__init__()
        self.frame, self.tags = {}, []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "iframe":
            self.frame = dict(attributes)


def test_the_page_is_in_a_sandbox(path, tmp_path):
    profile = counterpoint.load(path)
    found = Frame(profile._repr_html_())
    assert found.tags == ["iframe"]
    # If the frame had the notebook's origin, the page could access the notebook.
    assert "allow-same-origin" not in found.frame["sandbox"].split()
    profile.html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert found.frame["srcdoc"] == page and page.startswith("<!doctype html>")
    assert "<script>alert" not in page


def test_a_long_page_is_linked(path, monkeypatch):
    monkeypatch.setattr(_page, "MOST", 1000)
    shown = counterpoint.load(path)._repr_html_()
    assert Frame(shown).tags == ["p", "a"] and "srcdoc" not in shown
    link = shown.split('href="file://')[1].split('"')[0]
    assert open(link).read().startswith("<!doctype html>")


def test_a_report_shows_its_profile_and_else_its_table(path):
    report = Report(calls=[{"Name": Text(EVIL), "Duration (us)": Duration(1.0), "Count": Count(1)}])
    shown = report._repr_html_()
    assert Frame(shown).tags == ["pre"] and "&lt;script&gt;" in shown
    report._recorded = counterpoint.load(path)
    assert Frame(report._repr_html_()).tags == ["iframe"]
    again = pickle.loads(pickle.dumps(report))
    assert again == report and again._recorded is None
    report._recorded.path += ".gone"
    shown = report._repr_html_()
    assert Frame(shown).tags == ["pre"] and "gone" in shown and "Duration (us)" in shown
