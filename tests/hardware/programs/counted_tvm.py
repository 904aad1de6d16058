"""Runs two ops of TVM on the first CUDA device. The second op has four times the elements of the first. Prints the
values of two counters of the device for each op, as JSON, or that there is no CUDA."""

import json
import sys
import warnings

import numpy as np
import tvm
from tvm import relax

import counterpoint.tvm as cp

device = tvm.cuda(0)
if not device.exist or not tvm.get_global_func("target.build.cuda", allow_missing=True):
    print("this TVM has no CUDA, or no device of it")
    sys.exit()
# Moved after TVM 0.25.
try:
    from tvm.s_tir import dlight
except ImportError:
    from tvm import dlight
TENSOR = getattr(relax, "TensorStructInfo", None) or relax.TensorType
NAMES = ["cuda:::event:elapsed_cycles_sm:device=0", "cuda:::sm__inst_executed.sum:device=0"]
SIZES = {"add_1": 1 << 20, "add_4": 1 << 22}


def machine(size):
    x = relax.Var("x", TENSOR((size,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit_output(builder.emit(relax.op.add(x, x)))
        builder.emit_func_output(value)
    target = tvm.target.Target.from_device(device)
    with target:
        module = relax.transform.LegalizeOps()(builder.get())
        module = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(module)
        return relax.VirtualMachine(tvm.compile(module, target=target), device)


found = {}
with warnings.catch_warnings():
    # A counter that cannot be read is an error here.
    warnings.simplefilter("error", cp.CounterpointWarning)
    for name, size in SIZES.items():
        vm = machine(size)
        argument = tvm.runtime.tensor(np.ones(size, "float32"), device)
        vm["main"](argument)
        with cp.profile(vm, collectors=[cp.PAPIMetricCollector({device: NAMES})]) as prof:
            vm["main"](argument)
        rows = [row for row in prof.report().calls if row["Name"].string == "add"]
        found[name] = {counter: rows[0][counter].value for counter in NAMES}
print(json.dumps(found))
