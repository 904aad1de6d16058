"""Trains a small transformer, and prints the time of a step as Google Benchmark's JSON.

    training.py STEPS THREADS

An op takes 20 to 30 µs, and PyTorch's code for observers is no longer in the caches when the next one begins.
A bench that repeats one op does not show this.
"""

import json
import sys
import time

import torch

LAYERS, WIDTH, HEADS, INNER, BATCH = 12, 256, 8, 1024, (4, 64)


def main():
    steps, threads = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, LAYERS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    given, wanted = torch.randn(*BATCH, WIDTH), torch.randn(*BATCH, WIDTH)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(given), wanted).backward()
        optimizer.step()

    step()
    begun, used = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(steps):
        step()
    used, took = time.process_time_ns() - used, time.perf_counter_ns() - begun
    found = {
        "time_unit": "ns",
        "real_time": took / steps,
        "cpu_time": used / steps,
        "iterations": steps,
    }
    print(json.dumps({"benchmarks": [found]}))


main()
