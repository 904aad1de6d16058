"""Times blocks of 50 steps of a training loop on the device: python3 loop_torch.py [profile]. Prints the
seconds of a step for each of 10 blocks, as JSON. With `profile`, torch.profiler records the blocks."""

import contextlib
import json
import sys
import time

import torch


def main() -> None:
    torch.manual_seed(7)
    layers = [torch.nn.Linear(512, 512), torch.nn.ReLU()] * 8
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(64, 512, device="cuda")

    def block() -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(50):
            optimizer.zero_grad()
            (model(batch) - batch).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / 50

    block()
    both = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    is_profiled = sys.argv[1:] == ["profile"]
    with torch.profiler.profile(activities=both) if is_profiled else contextlib.nullcontext():
        times = [block() for _ in range(10)]
    print(json.dumps(times))


main()
