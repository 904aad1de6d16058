"""Reads the two Arrow streams of a track with pyarrow, and checks their rows."""

import sys, pyarrow as pa
series = pa.ipc.open_stream(open(sys.argv[1] + "/series.arrows", "rb")).read_all().to_pylist()
assert series == [dict(series=0, track="∞", name="", unit="J", scale=0.25, scope="node",
    scope_number=1, times="ticks", cumulative=True, interval_ns=7, source="paper")], series
table = pa.ipc.open_stream(open(sys.argv[1] + "/samples.arrows", "rb")).read_all()
table.validate(full=True)
assert table["raw"].null_count == 23333 and table.num_rows == 70000
for i, row in enumerate(table.to_pylist()):
    words = (None,) * 3 if i % 3 == 1 else (2**64 - 1 - i, 1, 2)
    assert (row["time"], row["raw"], row["enabled_ns"], row["running_ns"]) == (i, *words), row
