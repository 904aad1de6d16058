"""Measures what an instrument adds to each call of TVM's virtual machine.

    op.py LIBCOUNTERPOINT NOOP SCRATCH

Runs a module of 100 trivial kernels, with three tensors each. The cases take turns: without an
instrument, with a native instrument that does nothing, with Counterpoint's while a run records, and with
an instrument in Python. Prints nanoseconds per call that the virtual machine makes: medians over 300
turns.
"""
import importlib.util
import inspect
import os
import statistics
import sys
import time

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

KERNELS = 100
RUNS = 3
TURNS = 300


def source(result):
    lines = [
        "from tvm.script import ir as I, relax as R, tirx as T",
        "@I.ir_module",
        "class Model:",
        "    @T.prim_func",
        '    def add(A: T.Buffer((1, 4), "float32"), B: T.Buffer((1, 4), "float32"), '
        'C: T.Buffer((1, 4), "float32")):',
        "        for i in range(4):",
        "            C[0, i] = A[0, i] + B[0, i]",
        "    @R.function",
        '    def main(x: R.Tensor((1, 4), "float32")) -> R.Tensor((1, 4), "float32"):',
        "        cls = Model",
        "        y0 = x",
    ]
    for i in range(KERNELS):
        lines.append(
            f'        y{i + 1} = R.call_tir(cls.add, (y{i}, x), {result}=R.Tensor((1, 4), "float32"))'
        )
    return "\n".join(lines + [f"        return y{KERNELS}", ""])


def main():
    library, noop, scratch = sys.argv[1:]
    new = "ty_args" in inspect.signature(relax.call_pure_packed).parameters
    path = os.path.join(scratch, "tvm_op_model.py")
    with open(path, "w") as file:
        file.write(source("out_ty" if new else "out_sinfo"))
    spec = importlib.util.spec_from_file_location("tvm_op_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tvm_op_model"] = module
    spec.loader.exec_module(module)
    vm = relax.VirtualMachine(tvm.compile(module.Model, target="llvm"), tvm.cpu())
    x = tvm.runtime.tensor(np.ones((1, 4), "float32"))
    run = vm["main"]

    calls = 0

    def in_python(_function, _name, before, _result, *_arguments):
        nonlocal calls
        calls += before

    vm.set_instrument(in_python)
    run(x)
    per_run = calls
    functions = tvm_ffi.load_module(library)
    ours = functions["counterpoint_instrument"](functions["counterpoint_vm"]("bench"), None)
    nothing = tvm_ffi.load_module(noop)["noop"]
    cases = {"bare": None, "noop": nothing, "ours": ours, "python": in_python}
    times = {name: [] for name in cases}
    for turn in range(TURNS + 2):
        for name, instrument in cases.items():
            vm.set_instrument(instrument)
            count = RUNS if name != "python" else 1
            run(x)
            start = time.thread_time_ns()
            for _ in range(count):
                run(x)
            spent = (time.thread_time_ns() - start) / count / per_run
            if turn >= 2:
                times[name].append(spent)
    vm.set_instrument(None)
    for name, all_of_it in times.items():
        print(f"{name} {statistics.median(all_of_it):.1f} ns")
    print(f"calls {per_run} calls")


main()
