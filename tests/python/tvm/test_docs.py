"""Runs the Python examples of the documentation, except those that other tests run. Also compares the output of the
worked example in docs/tvm.md with the output on the page, except for values that depend on time.

Examples are blocks that begin with ```python. crates/cli/tests/it/documented.rs runs the command lines on the pages;
its comment explains how a page states the language of a block.
"""

import re

import places
import pytest
import support

# Other tests run the rest of the examples. tests/python/torch/test_torch_docs.py runs those about
# PyTorch. crates/cli/tests/it/sampled.rs runs the example of sampling.md with profiles whose totals
# are known. tests/python/report/test_load.py runs the example of python.md with a profile that the
# test makes.
PAGES = sorted([*(p for p in places.ROOT.glob("docs/*.md")
                  if not p.name.startswith("pytorch") and p.name not in ("sampling.md", "python.md")),
                places.ROOT / "README.md", places.ROOT / "bindings/python/README.md"])
BLOCKS = [(page, n, code) for page in PAGES
          for n, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M))]
# This text defines names that examples use without defining them.
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
    section = TEXT.split("## A worked example")[1]
    return re.search(r"```python\n(.*?)```", section, re.S).group(1)


@pytest.mark.parametrize("page, n, code", BLOCKS, ids=[f"{p.name}-{n}" for p, n, _ in BLOCKS])
def test_every_example_runs(page, n, code):
    if code == worked():
        assert support.python(code)
        return
    # Other examples use the model of the worked example, without its profile.
    model = worked().split("with cp.profile")[0] + GIVEN
    if 'vm["main"]' in code:
        model = model.replace("forward", "main")
    printed = support.python(model + code)
    assert "matmul" in printed and "Executor: VM" in printed
    if "Pool" in code:
        header, *rows = printed.splitlines()
        assert "allocations" in header and "page-faults" in header
        # The collector's value is the difference between two readings of the pool, and each reading
        # adds 3 to the pool's count. So it is 3.
        assert any(re.search(r"\bmatmul\b.*\b3\b", row) for row in rows), printed


def test_no_example_is_overlooked():
    names = [page.name for page, _, _ in BLOCKS]
    assert names.count("tvm.md") == 2 and names.count("README.md") == 1


def cells(table):
    """Returns the cells in the columns `STABLE`, whose values do not depend on time. Each of these
    columns, except the first, ends where its header ends."""
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
        # The number after a name may begin further left than its column's header, so two spaces end
        # the name.
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
