"""Calls ops of TVM that launch kernels of the test plugin."""

import ctypes, importlib.util, inspect, sys
import numpy as np
import tvm
from tvm import relax
import counterpoint.tvm as cp

plugin, output, ids = sys.argv[1:]
library = ctypes.CDLL(plugin)

def launching(name, times):
    @tvm.register_global_func(name)
    def call(x):
        for _ in range(times):
            library.accelerator_launch(f"k of {name}".encode())
        return x

launching("test.one", 1)
launching("test.three", 3)
launching("test.none", 0)
SOURCE = '''
from tvm.script import ir as I, relax as R
@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        a = R.call_pure_packed("test.one", x, TYPES=(R.Tensor((4,), "float32"),))
        b = R.call_pure_packed("test.none", a, TYPES=(R.Tensor((4,), "float32"),))
        c = R.call_pure_packed("test.three", b, TYPES=(R.Tensor((4,), "float32"),))
        return c
'''
# `TYPES` stands for an argument whose name differs between versions of TVM.
source = output + ".py"
with open(source, "w") as file:
    types = "ty_args" if "ty_args" in inspect.signature(relax.call_pure_packed).parameters else "sinfo_args"
    file.write(SOURCE.replace("TYPES=", types + "="))
spec = importlib.util.spec_from_file_location("model_source", source)
module = importlib.util.module_from_spec(spec)
sys.modules["model_source"] = module
spec.loader.exec_module(module)
vm = relax.VirtualMachine(tvm.compile(module.Model, target="llvm"), tvm.cpu())
x = tvm.runtime.tensor(np.zeros(4, "float32"))
with cp.profile(vm, counters=[], output=output, plugins=[plugin], plugin_ids=ids == "ids"):
    vm["main"](x)
    vm["main"](x)
