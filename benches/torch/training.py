"""Trains a small transformer, and prints the time of its steps as Google Benchmark's JSON.

    training.py STEPS THREADS [turns [OBSERVER]]

An op of the transformer takes 20 to 30 µs, so PyTorch's code for observers is no longer in the caches when
the next op begins. A benchmark that repeats one op does not show the cost of refilling the caches.

With `turns`, the program takes turns with others, as `benches/price_in_turns.py` describes. OBSERVER is the
shared object of `noop.cpp`. With it, PyTorch announces each op to an observer that does nothing.
The key `steps` contains the processor time and the wall time of each step, in ns.
"""

import ctypes
import json
import sys
import time

import torch

LAYERS, WIDTH, HEADS, INNER, BATCH = 12, 256, 8, 1024, (4, 64)


def main():
    steps, threads = int(sys.argv[1]), int(sys.argv[2])
    takes_turns = sys.argv[3:4] == ["turns"]
    for observer in sys.argv[4:]:
        ctypes.CDLL(observer).noop_on()
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
    used, took = [], []
    for _ in range(steps):
        if takes_turns:
            print("turn", flush=True)
            sys.stdin.readline()
        begun, before = time.perf_counter_ns(), time.process_time_ns()
        step()
        used.append(time.process_time_ns() - before)
        took.append(time.perf_counter_ns() - begun)
    found = {
        "time_unit": "ns",
        "real_time": sum(took) / steps,
        "cpu_time": sum(used) / steps,
        "iterations": steps,
        "steps": {"cpu": used, "wall": took},
    }
    print(json.dumps({"benchmarks": [found]}))


main()
