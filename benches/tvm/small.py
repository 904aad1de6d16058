"""A model of a hundred small ops on stock TVM, like a program that does not know about the profiler.

    small.py FOLDER RUNS

Compiles the model into FOLDER if it is not there yet, runs it, and prints Google Benchmark's JSON.
"""

import importlib.util
import inspect
import json
import os
import sys
import time

import numpy as np
import tvm
from tvm import relax

KERNELS = 100


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


def compile_into(folder, library):
    new = "ty_args" in inspect.signature(relax.call_pure_packed).parameters
    path = os.path.join(folder, "small_model.py")
    with open(path, "w") as file:
        file.write(source("out_ty" if new else "out_sinfo"))
    spec = importlib.util.spec_from_file_location("small_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["small_model"] = module
    spec.loader.exec_module(module)
    tvm.compile(module.Model, target="llvm").export_library(library)


def main():
    folder, runs = sys.argv[1], int(sys.argv[2])
    library = os.path.join(folder, "small_model.so")
    if not os.path.exists(library):
        compile_into(folder, library)
    vm = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
    x = tvm.runtime.tensor(np.ones((1, 4), "float32"))
    run = vm["main"]
    run(x)
    begun, used = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(runs):
        run(x)
    used, took = time.process_time_ns() - used, time.perf_counter_ns() - begun
    found = {
        "time_unit": "ns",
        "real_time": took / runs,
        "cpu_time": used / runs,
        "iterations": runs,
    }
    print(json.dumps({"benchmarks": [found]}))


main()
