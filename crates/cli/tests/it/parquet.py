"""Compares an exported Parquet file with the CSV of the same calls: the names of the columns, and every cell.
Some types and metadata are checked, too."""

import csv, json, sys
import pyarrow as pa, pyarrow.parquet as pq
parquet, text = sys.argv[1:]
file = pq.ParquetFile(parquet)
table = file.read()
assert file.metadata.row_group(0).column(0).compression == "SNAPPY"
head = file.metadata.metadata
assert head[b"counterpoint.schema"] == b"counterpoint.export/1", head
assert json.loads(head[b"counterpoint.profile"])["host"] == "paper"
types = {f.name: f.type for f in file.schema_arrow}
assert types["pid"] == pa.uint32() and types["start_ns"] == pa.int64(), types
assert types["duration_ns"] == pa.float64() and types["a"] == pa.uint64(), types
assert types["op"].value_type == pa.string(), types
rows = list(csv.DictReader(open(text, newline="")))
assert list(rows[0]) == table.column_names
assert len(rows) == table.num_rows > 70_000, table.num_rows
nulls = 0
for name in table.column_names:
    for row, value in zip(rows, table.column(name).to_pylist()):
        cell = row[name]
        nulls += value is None
        same = cell == "" if value is None else type(value)(cell) == value
        assert same, (name, cell, value)
assert nulls > 0
