"""Loads and unloads modules twenty times in one process, and prints the result of each round."""

import sys
import numpy as np
import iree.runtime as rt

config = rt.Config(sys.argv[1])
for cycle in range(20):
    context = rt.SystemContext(config=config)
    for path in sys.argv[2:]:
        context.add_vm_module(rt.VmModule.copy_buffer(context.instance, open(path, "rb").read()))
    mlp = context.modules.module_mlp if hasattr(context.modules, "module_mlp") else context.modules.module
    x = np.linspace(0, 1, 64 * 784, dtype=np.float32).reshape(64, 784)
    result = mlp["mlp"](x).to_host()
    print(cycle, result.tobytes().hex()[:64], float(result.sum()))
    del mlp, context
