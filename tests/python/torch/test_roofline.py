"""Compares the numbers of floating-point operations in a report with those that PyTorch's own FlopCounterMode
counts."""

import json
import subprocess

import places

PROGRAM = """
import json
import sys
import torch
from torch.utils.flop_counter import FlopCounterMode
import counterpoint.torch as cp
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(48, 96), torch.nn.GELU(),
    torch.nn.TransformerEncoderLayer(96, 4, 160, batch_first=True, dropout=0.0),
    torch.nn.Linear(96, 10)).train()
x = torch.randn(3, 17, 48)
def work():
    loss = model(x).square().mean()
    loss.backward()
    torch.bmm(torch.ones(5, 6, 7), torch.ones(5, 7, 8))
    torch.baddbmm(torch.ones(5, 6, 8), torch.ones(5, 6, 7), torch.ones(5, 7, 8))
work()
with FlopCounterMode(display=False) as counter:
    work()
with cp.profile([], shapes=True, output=sys.argv[1]) as prof:
    work()
theirs = {str(op): flop for op, flop in counter.get_flop_counts()["Global"].items()}
print(json.dumps(theirs))
"""


def test_operations_are_torchs_own(torch, tmp_path):
    profile = tmp_path / "work.cpt"
    theirs = torch.run(PROGRAM, profile).found
    words = [places.DIST / "bin/counterpoint", "report", profile, "--roofline", "--format", "json"]
    document = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    ours = {}
    for row in document["rows"]:
        if row["flop_per_call"] is not None:
            ours[row["op"]] = ours.get(row["op"], 0) + row["flop_per_call"] * row["calls"]
    assert len(theirs) >= 4, theirs
    for name, flop in theirs.items():
        # FlopCounterMode names an op `aten.mm`, for example, and an overload of this op
        # `aten.mm.default`.
        op = "aten::" + name.split(".")[1]
        assert ours.get(op) == flop, (op, theirs, ours)
