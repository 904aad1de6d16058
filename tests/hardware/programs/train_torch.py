"""Trains a small network on the device: python3 train_torch.py [STEPS] [TRACE.json AVERAGES.json].

If two files are named, torch.profiler records the steps. The trace is written to the first file, and the rows of
`key_averages` to the second. Each step contains work on two streams, copies from pinned memory and on the device,
fills, and a replayed graph. Prints the loss and a sum."""

import json
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch


def main() -> int:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    side = torch.cuda.Stream()
    host = torch.randn(64, 256).pin_memory()
    held = torch.zeros(1024, device="cuda")
    copy = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held.add_(1.0)
        held.mul_(1.0)

    def step() -> torch.Tensor:
        batch = host.to("cuda", non_blocking=True)
        with torch.cuda.stream(side):
            other = torch.zeros(4096, device="cuda")
            other.add_(2.0)
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        graph.replay()
        copy.copy_(held)
        torch.cuda.current_stream().wait_stream(side)
        return loss.detach()

    step()
    torch.cuda.synchronize()
    if len(sys.argv) > 3:
        both = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=both) as profiled:
            for _ in range(steps):
                loss = step()
            torch.cuda.synchronize()
        profiled.export_chrome_trace(sys.argv[2])
        rows = [
            {
                "name": row.key,
                "count": row.count,
                "device": str(row.device_type).rsplit(".", 1)[-1],
                "self_device_us": row.self_device_time_total,
                "device_us": row.device_time_total,
            }
            for row in profiled.key_averages()
        ]
        with open(sys.argv[3], "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=0)
    else:
        for _ in range(steps):
            loss = step()
    print(f"loss {loss.item():.6f} held {held.sum().item():.0f}")
    return 3


sys.exit(main())
