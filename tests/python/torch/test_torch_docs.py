"""Runs every Python example of the pages about PyTorch."""

import re

import places
import pytest

PAGES = sorted(places.ROOT.glob("docs/pytorch*.md"))
BLOCKS = [
    (page.name, n, code)
    for page in PAGES
    for n, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M))
]
# The examples assume that these names exist.
GIVEN = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
x = torch.randn(8, 16)
"""


def test_there_are_examples():
    assert {"pytorch.md", "pytorch-counters.md"} <= {page for page, _, _ in BLOCKS}


@pytest.mark.parametrize("page, n, code", BLOCKS, ids=[f"{p}-{n}" for p, n, _ in BLOCKS])
def test_every_example_runs(torch, tmp_path, page, n, code):
    # Examples write files, so each runs in a folder of its own.
    done = torch.run(f"import os\nos.chdir({str(tmp_path)!r})\n{GIVEN}{code}", quick=False)
    assert done.code == 0, done.errors
    assert "aten::addmm" in done.output, done.output
    if "export_chrome_trace" in code:
        assert (tmp_path / "trace.json").stat().st_size > 0
