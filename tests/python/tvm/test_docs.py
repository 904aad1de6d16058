"""Runs every Python example of every page, and checks that the worked example of docs/tvm.md is what its
code prints, as far as the output does not depend on time.

Examples are blocks that begin with ```python; the program that runs command lines is
crates/cli/tests/it/documented.rs, which also says how a block is marked.
"""

import re

import places
import pytest
import support

# The examples about PyTorch run where PyTorch is: tests/python/torch/test_torch_docs.py. That of
# sampling.md is run by crates/cli/tests/it/sampled.rs, on profiles whose totals are known, and that of
# python.md by tests/python/report/test_load.py, on a profile.
PAGES = sorted([*(p for p in places.ROOT.glob("docs/*.md")
                  if not p.name.startswith("pytorch") and p.name not in ("sampling.md", "python.md")),
                places.ROOT / "README.md", places.ROOT / "bindings/python/README.md"])
BLOCKS = [(page, n, code) for page in PAGES
          for n, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M))]
# Names that examples after the worked one take for granted, as the pages say.
GIVEN = """
class pool:
    made = 0

    @classmethod
    def calls(cls):
        cls.made += 3
        return cls.made

x, params = args[0], args[1:]
"""

TEXT = (places.ROOT / "docs/tvm.md").read_text()
STABLE = ("Name", "Device", "Count", "Argument Shapes", "Bytes Allocated")


def worked():
    """Returns the code of the worked example."""
    section = TEXT.split("## A worked example")[1]
    return re.search(r"```python\n(.*?)```", section, re.S).group(1)


@pytest.mark.parametrize("page, n, code", BLOCKS, ids=[f"{p.name}-{n}" for p, n, _ in BLOCKS])
def test_every_example_runs(page, n, code):
    if code == worked():
        assert support.python(code)
        return
    # The model of the worked example, without its profile, under the names that pages use.
    model = worked().split("with cp.profile")[0] + GIVEN
    if 'vm["main"]' in code:
        model = model.replace("forward", "main")
    printed = support.python(model + code)
    assert "matmul" in printed and "Executor: VM" in printed
    if "Pool" in code:
        header, *rows = printed.splitlines()
        assert "allocations" in header and "page-faults" in header
        # The collector reads the pool twice for each op, and each reading adds 3 to it.
        assert any(re.search(r"\bmatmul\b.*\b3\b", row) for row in rows), printed


def test_no_example_is_overlooked():
    names = [page.name for page, _, _ in BLOCKS]
    assert names.count("tvm.md") == 2 and names.count("README.md") == 1


def cells(table):
    """Returns the rows of the stable columns, by the header's places: all columns but the first end where their
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
    code = worked()
    written = re.search(r"```text\n(Name.*?)```", section, re.S).group(1)
    printed = support.python(code)
    stripped = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    assert len(cells(written)) >= 12
    assert cells(stripped) == cells(written)
    assert "Executor: VM" in stripped and "Estimated cost of the probes (us): " in stripped
