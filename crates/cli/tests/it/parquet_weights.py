"""Checks the columns that the Parquet file of a run with a budget has in addition: their types, all of their cells
(against those of the CSV), and the relations between these columns."""

import csv, sys
import pyarrow as pa, pyarrow.parquet as pq
parquet, text = sys.argv[1:]
table = pq.read_table(parquet)
rows = list(csv.DictReader(open(text, newline="")))
assert list(rows[0]) == table.column_names and len(rows) == table.num_rows > 0
found = {}
for name in ["weight", "skipped", "counter_weight"]:
    column = table.column(name)
    assert column.type == pa.uint64(), (name, column.type)
    found[name] = column.to_pylist()
    for row, value in zip(rows, found[name]):
        assert row[name] == ("" if value is None else str(value)), (name, row[name], value)
assert None not in found["weight"] + found["skipped"]
assert found["weight"][0] == found["counter_weight"][0] == 1 < max(found["weight"])
assert max(found["skipped"]) > 0
for weight, counter_weight, faults in zip(found["weight"], found["counter_weight"], table.column("page-faults:u").to_pylist()):
    # A call has a weight for counters if and only if its counters were read. Counters were read in
    # only some of the timed calls, so the weight for counters is a multiple of the call's weight.
    assert (counter_weight is None) == (faults is None)
    assert counter_weight is None or counter_weight % weight == 0
assert None in found["counter_weight"]
print(table.num_rows, sum(found["skipped"]))
