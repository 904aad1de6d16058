"""Records a model in an unmodified TVM, using only the functions of libcounterpoint.so.

    tvm_stock.py LIBRARY SCRATCH RUN_FILE RUN_FILE RUN_FILE

Prints one JSON object: the ops that an instrument of this script saw, and what the functions
returned.
"""
import collections
import ctypes
import importlib.util
import inspect
import json
import os
import sys

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

SOURCE = '''
from tvm.script import ir as I, relax as R, tirx as T
@I.ir_module
class Model:
    @T.prim_func
    def par(A: T.Buffer((64, 256), "float32"), B: T.Buffer((64, 256), "float32")):
        for i in T.parallel(64):
            for j in range(256):
                B[i, j] = A[i, j] + T.float32(1)
    @T.prim_func
    def work(A: T.Buffer((64, 256), "float32"), B: T.Buffer((64, 256), "float32")):
        C = T.alloc_buffer((64, 256), "float32")
        for i in range(64):
            for j in range(256):
                C[i, j] = A[i, j] * T.float32(2)
        for i in range(64):
            for j in range(256):
                B[i, j] = C[63 - i, j]
    @R.function
    def inner(x: R.Tensor((64, 256), "float32")) -> R.Tensor((64, 256), "float32"):
        cls = Model
        with R.dataflow():
            y = R.call_tir(cls.par, (x,), RESULT=R.Tensor((64, 256), "float32"))
            R.output(y)
        return y
    @R.function
    def main(x: R.Tensor((64, 256), "float32")) -> R.Tensor((64, 256), "float32"):
        cls = Model
        y = cls.inner(x)
        z = R.call_tir(cls.work, (y,), RESULT=R.Tensor((64, 256), "float32"))
        return z
    @R.function
    def throws(x: R.Tensor((64, 256), "float32")) -> R.Tensor((64, 256), "float32"):
        y = R.call_pure_packed("counterpoint.test.raises", x, TYPES=(R.Tensor((64, 256), "float32"),))
        return y
'''


@tvm.register_global_func("counterpoint.test.raises")
def raises(*_):
    raise ValueError("of the op")


class Table(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("build", ctypes.c_char * 32),
        ("state", ctypes.CFUNCTYPE(ctypes.c_uint32)),
        ("session_begin", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)),
        ("session_end", ctypes.CFUNCTYPE(ctypes.c_int32)),
    ]


def build(scratch):
    """Builds the model. The names of two arguments differ between versions of TVM."""
    new = "ty_args" in inspect.signature(relax.call_pure_packed).parameters
    result, types = ("out_ty", "ty_args") if new else ("out_sinfo", "sinfo_args")
    path = os.path.join(scratch, "model_source.py")
    with open(path, "w") as file:
        file.write(SOURCE.replace("RESULT=", result + "=").replace("TYPES=", types + "="))
    spec = importlib.util.spec_from_file_location("model_source", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["model_source"] = module
    spec.loader.exec_module(module)
    return module.Model


def main():
    library, scratch, first, second, third = sys.argv[1:]
    handle = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    table = Table.in_dll(handle, "counterpoint_agent")
    functions = tvm_ffi.load_module(library)
    said = {"parallel": functions["counterpoint_parallel"]()}

    model = build(scratch)
    executable = tvm.compile(model, target="llvm")
    vm = relax.VirtualMachine(executable, tvm.cpu())
    x = tvm.runtime.tensor(np.arange(64 * 256, dtype="float32").reshape(64, 256))
    bare = vm["main"](x).numpy()

    # An instrument (a hook around ops) of the user, which Counterpoint's own instrument calls. Both
    # instruments must see the same ops.
    ops = collections.Counter()

    def theirs(_function, name, before, _result, *arguments):
        if before:
            shapes = ", ".join(
                f"{a.dtype}[{', '.join(map(str, a.shape))}]" for a in arguments if hasattr(a, "shape")
                and hasattr(a, "dtype")
            )
            ops[f"{name}({shapes})"] += 1

    number = functions["counterpoint_vm"]("machine")
    user = tvm_ffi.convert(theirs)
    vm.set_instrument(functions["counterpoint_instrument"](number, user))
    run = functions["counterpoint_entry"](number, "main", vm["main"])
    throws = functions["counterpoint_entry"](number, "throws", vm["throws"])

    def session(run_file, body):
        began = table.session_begin(run_file.encode())
        ops.clear()
        before = functions["counterpoint_calls"](number)
        body()
        calls = functions["counterpoint_calls"](number) - before
        return {"began": began, "ended": table.session_end(), "calls": calls, "ops": dict(ops)}

    started = []

    def start(kind, device):
        started.append((kind, device))
        return len(started)

    def stop(state, slots, count):
        words = ctypes.cast(slots, ctypes.POINTER(ctypes.c_int64 * 2 * count)).contents
        words[0][0], words[0][1] = state, 1

    def in_bytecode():
        equal = all(np.array_equal(run(x).numpy(), bare) for _ in range(2))
        collector = functions["counterpoint_collector"](start, stop, "number of the op", 0)
        try:
            throws(x)
            said["error"] = None
        except ValueError as error:
            said["error"] = str(error)
        equal = equal and np.array_equal(run(x).numpy(), bare)
        said["collector"] = [collector, functions["counterpoint_collector_remove"](collector)]
        said["equal"] = bool(equal)

    said["bytecode"] = session(first, in_bytecode)
    said["started"] = len(started)
    vm.set_instrument(None)

    compiled = relax.VirtualMachine(relax.build(model, "llvm", exec_mode="compiled"), tvm.cpu())
    number = functions["counterpoint_vm"]("compiled")
    compiled.set_instrument(functions["counterpoint_instrument"](number, None))
    entry = functions["counterpoint_entry"](number, "main", compiled["main"])
    said["compiled"] = session(second, lambda: entry(x))

    path = os.path.join(scratch, "model.so")
    executable.export_library(path)
    loaded = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
    number = functions["counterpoint_vm"]("machine")
    loaded.set_instrument(functions["counterpoint_instrument"](number, user))
    again = functions["counterpoint_entry"](number, "main", loaded["main"])
    said["loaded"] = session(third, lambda: again(x))
    for wrong in [("counterpoint_vm", 5), ("counterpoint_calls", 12345)]:
        try:
            functions[wrong[0]](wrong[1])
        except (TypeError, ValueError) as error:
            said[wrong[0]] = type(error).__name__
    json.dump(said, sys.stdout)


main()
