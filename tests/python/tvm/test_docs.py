"""The worked example of docs/tvm.md is what its code prints, as far as it does not depend on time."""

import re

import places
import support

TEXT = (places.ROOT / "docs/tvm.md").read_text()
STABLE = ("Name", "Device", "Count", "Argument Shapes", "Bytes Allocated")


def cells(table):
    """Rows of the stable columns, by the header's places: columns but the first end where their
    header ends."""
    lines = table.strip().splitlines()
    header, rows = lines[0], lines[1 : lines.index("")]
    starts, at = {}, 0
    for found in re.finditer(r"\S+(?: \S+)*", header):
        starts[found.group()] = (at, found.end())
        at = found.end()
    first = header.index("Duration (us)")
    starts["Name"] = (0, first)
    found = set()
    for row in rows:
        # The number behind a name begins somewhere below its header.
        name = re.split(r"\s{2,}", row)[0].strip()
        values = [row[slice(*starts[column])].strip() for column in STABLE[1:]]
        found.add((name, *values))
    return found


def test_the_worked_example_is_real():
    section = TEXT.split("## A worked example")[1]
    code = re.search(r"```python\n(.*?)```", section, re.S).group(1)
    written = re.search(r"```\n(Name.*?)```", section, re.S).group(1)
    printed = support.python(code)
    stripped = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    assert len(cells(written)) >= 12
    assert cells(stripped) == cells(written)
    assert "Executor: VM" in stripped and "Estimated cost of the probes (us): " in stripped
