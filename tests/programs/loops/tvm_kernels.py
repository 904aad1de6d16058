"""Writes TVM's kernels as LLVM IR, and compares two modules that TVM's LLVM made from such IR.

tvm_kernels.py text OUT.ll            writes the text of a model's kernels
tvm_kernels.py compare A.ll B.ll      loads both, calls every kernel of both with the same tensors,
                                      and prints `same N` if all results are the same bit by bit
"""

import re
import sys

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

SIZE = 48


class Model(nn.Module):
    def __init__(self):
        self.first = nn.Linear(SIZE, 2 * SIZE)
        self.second = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x: nn.Tensor):
        hidden = nn.op.softmax(nn.op.relu(self.first(x)), axis=-1)
        return nn.op.tanh(self.second(hidden)) + nn.op.sum(x, axis=-1, keepdims=True)


def text():
    mod, _ = Model().export_tvm({"forward": {"x": nn.spec.Tensor((7, SIZE), "float32")}})
    executable = tvm.compile(mod, target="llvm")
    return executable.mod.imports[0].inspect_source("ll")


def kernels(source):
    """Yields each kernel's name and argument shapes, from messages that the LLVM IR contains."""
    for message in re.findall(r'c"(\w+)\(((?:[\w.]+: Tensor[^"]*))\)\\00"', source):
        shapes = re.findall(r"Tensor\(\[([^\]]*)\], float32\)", message[1])
        if len(shapes) == message[1].count("Tensor("):
            numbers = [[int(n) for n in re.findall(r"T\.int64\((\d+)\)", s)] for s in shapes]
            yield message[0], numbers


def compare(first, second):
    with open(first) as file:
        source = file.read()
    modules = [tvm.runtime.load_module(path) for path in (first, second)]
    random = np.random.default_rng(7)
    same = 0
    for name, shapes in kernels(source):
        inputs = [random.random(shape, dtype="float32") for shape in shapes]
        results = []
        for module in modules:
            tensors = [tvm.runtime.tensor(value) for value in inputs]
            module[name](*tensors)
            results.append([tensor.numpy().tobytes() for tensor in tensors])
        if results[0] != results[1]:
            print("differs", name)
            sys.exit(1)
        same += 1
    print("same", same)


if sys.argv[1] == "text":
    with open(sys.argv[2], "w") as file:
        file.write(text())
else:
    compare(*sys.argv[2:])
