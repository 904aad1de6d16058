"""Calls two ops of TVM's virtual machine, `known.loop_10000` and `known.loop_100000`. Each calls the loop of known.c,
whose number of instructions is known.

    known_tvm.py LIBRARY ROUNDS"""

import ctypes
import sys

import numpy as np
import tvm
from tvm import relax

# Changed after TVM 0.25.
TENSOR = getattr(relax, "TensorStructInfo", None) or relax.TensorType
RESULT = "sinfo_args" if hasattr(relax, "TensorStructInfo") else "ty_args"
known = ctypes.CDLL(sys.argv[1])
x = relax.Var("x", TENSOR((1,), "float32"))
builder = relax.BlockBuilder()
with builder.function("main", [x], pure=False):
    value = x
    for n in (10_000, 100_000):

        def loop(same, n=n):
            known.known_loop(ctypes.c_ulong(n))
            return same

        name = f"known.loop_{n}"
        tvm.register_global_func(name, loop, override=True)
        result = {RESULT: [TENSOR((1,), "float32")]}
        value = builder.emit(relax.Call(relax.ExternFunc(name), [value], **result))
    builder.emit_func_output(value)
machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
argument = tvm.runtime.tensor(np.zeros(1, "float32"))
for _ in range(int(sys.argv[2])):
    machine["main"](argument)
print("done")
