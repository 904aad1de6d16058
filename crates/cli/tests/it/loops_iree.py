"""Twenty times, loads all given modules with instrumented loops, runs each one, and checks
that their results are equal."""

import sys
import numpy as np
import iree.runtime as rt

config = rt.Config(sys.argv[1])
a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 1024
for cycle in range(20):
    contexts = []
    for path in sys.argv[2:]:
        context = rt.SystemContext(config=config)
        context.add_vm_module(rt.VmModule.copy_buffer(context.instance, open(path, "rb").read()))
        contexts.append(context)
    results = [context.modules.module["mm"](a, a).to_host() for context in contexts]
    assert all((result == results[0]).all() for result in results)
    print(cycle, results[0].tobytes().hex()[:64], float(results[0].sum()))
    del contexts, context, results
