"""A script that does not know Counterpoint: profiles a few ops, and prints torch's events and tables as JSON."""

import json
import sys

import quick  # noqa: F401
import torch
from torch.profiler import ProfilerActivity, profile, record_function

x = torch.ones(8, 8)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
    with record_function("the user's range"):
        y = (x @ x).relu()
    y.sum()

# These events are read before anything is exported.
native = [
    {
        "name": e.name(),
        "device": e.device_index(),
        "device_type": str(e.device_type()),
        "resource": e.device_resource_id(),
        "start_ns": e.start_ns(),
        "duration_ns": e.duration_ns(),
        "id": e.correlation_id(),
        "linked": e.linked_correlation_id(),
        "thread": e.start_thread_id(),
    }
    for e in prof.profiler.kineto_results.events()
]
events = [
    {"name": e.name, "kernels": [[k.name, k.device, k.duration] for k in e.kernels], "id": e.id}
    for e in prof.events()
]
averages = {e.key: e.count for e in prof.key_averages()}
prof.export_chrome_trace(sys.argv[1])
print(json.dumps({"native": native, "events": events, "averages": averages}))
