"""Checks that a Parquet file has the columns and the cells of a CSV file. The name of the
schema and the types of two columns are checked, too."""

import csv, sys
import pyarrow as pa, pyarrow.parquet as pq
parquet, text, schema, least = sys.argv[1:]
file = pq.ParquetFile(parquet)
assert file.metadata.metadata[b"counterpoint.schema"] == schema.encode()
table, rows = file.read(), list(csv.DictReader(open(text, newline="")))
assert list(rows[0]) == table.column_names and len(rows) == table.num_rows >= int(least)
types = {f.name: f.type for f in file.schema_arrow}
assert types["id"] == pa.uint32() and types["ticks"] == pa.uint64(), types
for name in table.column_names:
    for row, value in zip(rows, table.column(name).to_pylist()):
        cell = row[name]
        if isinstance(value, bool):
            value = str(value).lower()
        assert cell == "" if value is None else type(value)(cell) == value, (name, cell, value)
