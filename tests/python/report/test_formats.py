"""Tests the formats of reports against the documented rules of TVM's former profiler. All expected numbers were
computed by hand."""

import json

import pytest
from counterpoint import _locale, _table
from counterpoint.report import Count, Duration, Loss, Percent, Ratio, Report, ReportError, Text


def call(name, us, percent, shapes, device="cpu0", **more):
    return {
        "Name": Text(name),
        "Duration (us)": Duration(us),
        "Percent": Percent(percent),
        "Device": Text(device),
        "Count": Count(1),
        "Argument Shapes": Text(shapes),
        **more,
    }


def sample():
    """Returns a report with a wall time of 200 us, so that 100 us are 50 %."""
    a = "float32[8, 4], float32[4]"
    return Report(
        calls=[
            call("add", 10.0, 5.0, a, **{"page-faults": Count(1), "Imbalance": Ratio(1.0)}),
            call("matmul", 100.0, 50.0, "float32[8, 8]", **{"page-faults": Count(2000)}),
            call("add", 30.5, 15.25, a, **{"page-faults": Count(3), "Imbalance": Ratio(2.0)}),
        ],
        device_metrics={
            "cpu0": {
                "Name": Text("Total"),
                "Duration (us)": Duration(200.0),
                "Count": Count(1),
                "Device": Text("cpu0"),
                "page-faults": Count(2010),
            }
        },
        configuration={"Executor": Text("VM"), "Number of threads": Count(2)},
    )


def stripped(table):
    return "\n".join(line.rstrip() for line in table.splitlines())


# The two calls of `add` have the same shapes and device, so they are one row: 10 + 30.5 = 40.5 us,
# 5 + 15.25 = 20.25 %, two calls, 1 + 3 = 4 faults, mean imbalance (1 + 2) / 2 = 1.5. Sum: 100 +
# 40.5 = 140.5 us, 70.25 %, three calls, 2004 faults, no imbalance. Widths: Name 10 (the line of
# dashes), Duration 13, Percent 7, Device 6, Count 5, Argument Shapes 25, Imbalance 9, page-faults
# 11; two spaces after each.
AGGREGATED = """\
Name        Duration (us)  Percent  Device  Count            Argument Shapes  Imbalance  page-faults
matmul             100.00    50.00    cpu0      1              float32[8, 8]                    2000
add                 40.50    20.25    cpu0      2  float32[8, 4], float32[4]        1.5            4
----------
Sum                140.50    70.25              3                                               2004
Total              200.00             cpu0      1                                               2010

Configuration
-------------
Executor: VM
Number of threads: 2"""


def test_table():
    table = sample().table()
    assert stripped(table) == AGGREGATED
    # Each cell is padded to the width of its column and followed by two spaces.
    width = (10 + 13 + 7 + 6 + 5 + 25 + 9 + 11) + 8 * 2
    assert {len(line) for line in table.splitlines()[:6]} == {width}
    assert str(sample()) == table


# Without `aggregate`, rows of the same op are not added up. The column of names is narrower,
# because the longest name has six letters.
PLAIN = """\
Name    Duration (us)  Percent  Device  Count            Argument Shapes  Imbalance  page-faults
add             10.00     5.00    cpu0      1  float32[8, 4], float32[4]          1            1
matmul         100.00    50.00    cpu0      1              float32[8, 8]                    2000
add             30.50    15.25    cpu0      1  float32[8, 4], float32[4]          2            3
Total          200.00             cpu0      1                                               2010

Configuration
-------------
Executor: VM
Number of threads: 2"""


def test_table_of_single_calls_in_their_order():
    assert stripped(sample().table(sort=False, aggregate=False, col_sums=False)) == PLAIN


def test_aggregation_is_by_hash_or_name_with_shapes_and_device():
    report = Report(
        calls=[
            call("f", 1.0, 1.0, "s", Hash=Text("1")),
            call("g", 2.0, 2.0, "s", Hash=Text("1")),  # The same op under another name.
            call("f", 4.0, 4.0, "s", Hash=Text("2")),
            call("f", 8.0, 8.0, "s", device="cuda0", Hash=Text("1")),
            call("f", 16.0, 16.0, "t", Hash=Text("1")),
        ]
    )
    merged = _table.merged(report.calls)
    assert [(r["Name"].string, r["Duration (us)"].microseconds) for r in merged] == [
        ("", 3.0),  # The names differ.
        ("f", 4.0),
        ("f", 8.0),
        ("f", 16.0),
    ]


def test_a_missing_value_is_a_dash_and_makes_its_sum_missing():
    report = Report(calls=[call("f", 1.0, 50.0, "", cycles=None), call("g", 1.0, 50.0, "", cycles=Count(7))])
    lines = [line.split() for line in report.table().splitlines()]
    assert lines[1] == ["f", "1.00", "50.00", "cpu0", "1", "–"]
    assert lines[2] == ["g", "1.00", "50.00", "cpu0", "1", "7"]
    assert lines[4] == ["Sum", "2.00", "100.00", "2", "–"]
    assert report.csv().splitlines()[1].endswith(',"f",50.0,')
    assert "cycles" not in json.loads(report.json())["calls"][0]
    assert report.to_pandas()["cycles"].isna().tolist() == [True, False]
    assert report.to_arrow()["cycles"].to_pylist() == [None, 7]


def test_csv():
    # Columns are sorted by the bytes of their names, so capitals come first. A missing value is an
    # empty cell.
    assert sample().csv() == (
        "Argument Shapes,Count,Device,Duration (us),Imbalance,Name,Percent,page-faults\n"
        '"float32[8, 4], float32[4]",1,"cpu0",10.0,1.0,"add",5.0,1\n'
        '"float32[8, 8]",1,"cpu0",100.0,,"matmul",50.0,2000\n'
        '"float32[8, 4], float32[4]",1,"cpu0",30.5,2.0,"add",15.25,3\n'
    )


def test_csv_of_awkward_texts_is_read_back():
    import csv
    import io

    name, column = 'a "b",\nc', 'pmu/event=1,umask=2/"'
    text = Report(calls=[call(name, 1.0, 1.0, "", **{column: Count(5)})]).csv()
    row = next(csv.DictReader(io.StringIO(text, newline="")))
    assert row["Name"] == name and row[column] == "5"


def test_json():
    report = Report(
        calls=[call('a "b"\n', 12.3, 10.3, "float32[1, 64]", PAPI_FP_OPS=Count(200832), r=Ratio(0.5))],
        device_metrics={"cpu0": {"Name": Text("Total"), "Duration (us)": Duration(0.1)}},
        configuration={"Executor": Text("VM"), "Number of threads": Count(8)},
    )
    assert report.json() == (
        '{"calls":[{"Name":{"string":"a \\"b\\"\\n"},"Duration (us)":{"microseconds":12.3},'
        '"Percent":{"percent":10.3},"Device":{"string":"cpu0"},"Count":{"count":1},'
        '"Argument Shapes":{"string":"float32[1, 64]"},"PAPI_FP_OPS":{"count":200832},'
        '"r":{"ratio":0.5}}],'
        '"device_metrics":{"cpu0":{"Name":{"string":"Total"},"Duration (us)":{"microseconds":0.1}}},'
        '"configuration":{"Executor":{"string":"VM"},"Number of threads":{"count":8}}}'
    )
    assert Report.from_json(report.json()) == report


# A report as TVM wrote it, with 17 decimals, keys in any order, a line feed in a string, and unknown keys.
OLD = """{"device_metrics": {"cpu0": {"Count": {"count": 1}, "Device": {"string": "cpu0"},
"Duration (us)": {"microseconds": 119.50000000000000000}, "Name": {"string": "Total"}}},
"version": 7, "calls": [{"Percent": {"percent": 10.29288702928870314}, "Hash": {"string": "0a1f"},
"Name": {"string": "mat
mul"}, "Duration (us)": {"microseconds": 12.30000000000000071}, "Count": {"count": 1},
"Argument Shapes": {"string": "float32[1, 64], float32[64, 64]"}, "Device": {"string": "cpu0"},
"Reuse": {"ratio": 0.25000000000000000}}],
"configuration": {"Executor": {"string": "Graph"}, "Number of threads": {"count": 8}}}"""


def test_old_json():
    report = Report.from_json(OLD)
    (row,) = report.calls
    assert row["Duration (us)"] == Duration(12.3)
    assert row["Percent"] == Percent(12.3 / 119.5 * 100)
    assert row["Name"] == Text("mat\nmul") and row["Hash"] == Text("0a1f")
    assert row["Reuse"] == Ratio(0.25)
    assert report.device_metrics["cpu0"]["Duration (us)"] == Duration(119.5)
    assert report.configuration["Executor"] == Text("Graph")
    assert "mat\\nmul " in report.table()


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "not a report"),
        ("[]", "not an object"),
        ('{"calls": {}}', "calls: not a list"),
        ('{"calls": [{"x": {"seconds": 1}}]}', "unknown kind of metric 'seconds'"),
        ('{"calls": [{"x": {"count": 1.5}}]}', "count cannot be 1.5"),
        ('{"calls": [{"x": {"count": true}}]}', "count cannot be True"),
        ('{"calls": [{"x": {}}]}', "one key, not 0"),
        ('{"configuration": {"x": {"string": 1}}}', "string cannot be 1"),
    ],
)
def test_what_is_no_report(text, said):
    with pytest.raises(ReportError, match=said):
        Report.from_json(text)


def test_losses_and_notes_are_kept():
    report = Report(losses=[Loss("call_abandoned", 2, "missing", "thrown")], notes=["a note"])
    again = Report.from_json(report.json())
    assert again.losses == report.losses and again.notes == ["a note"]
    assert "call_abandoned (2): thrown" in report.table() and "a note" in report.table()


def test_kinds_of_columns():
    report = sample()
    frame = report.to_pandas()
    assert list(frame.columns) == [
        "Name", "Duration (us)", "Percent", "Device", "Count", "Argument Shapes", "Imbalance", "page-faults",
    ]
    assert frame["page-faults"].sum() == 2004 and str(frame["page-faults"].dtype) == "Int64"
    assert frame["Duration (us)"].sum() == 140.5
    table = report.to_arrow()
    assert [str(t) for t in table.schema.types] == [
        "string", "double", "double", "string", "int64", "string", "double", "int64",
    ]
    assert table["Imbalance"].to_pylist() == [1.0, None, 2.0]


def test_numbers_of_other_places():
    german = _locale.Numbers(point=",", separator=".", groups=(3,))
    assert german.whole(-1234567) == "-1.234.567" and german.whole(123) == "123"
    assert german.fixed(1234.5, 2) == "1.234,50" and german.fixed(-0.5, 2) == "-0,50"
    assert german.significant(0.123, 2) == "0,12"
    # The last group size repeats: a group of three digits, then groups of two.
    assert _locale.Numbers(separator=",", groups=(3, 2)).whole(123456789) == "12,34,56,789"
    assert _locale.Numbers(separator=",", groups=(3, _locale.REST)).whole(123456789) == "123456,789"
    assert _locale.Numbers(separator=",", groups=(_locale.REST,)).whole(123456789) == "123456789"


def test_metrics_print_with_their_units():
    assert [str(m) for m in (Duration(12.3), Count(7), Percent(5), Ratio(0.123), Text("x"))] == [
        "12.30 us", "7", "5.00%", "0.12", "x",
    ]


def test_times_that_lie_in_each_other_have_no_sum():
    nested = [("outer", 10.0, 30.0), ("inner", 20.0, 20.0)]
    calls = [call(n, own, 0.0, "", **{"Total Duration (us)": Duration(t)}) for n, own, t in nested]
    line = _table.sums(calls)
    assert line["Duration (us)"] == Duration(30.0)
    assert "Total Duration (us)" not in line
