"""Finds the change point of each history with numpy, without code of Counterpoint.

The input is a JSON list of histories; a history is a list of rows of times. For each history, finds the row and the
split with the largest Q (defined in `diff/history.rs`). The p of this Q is computed from random orders of the points.
Prints a JSON list with the row, the first point after the split, Q and p of each history."""

import json
import sys

import numpy as np

generator = np.random.default_rng(7)


def best(distances):
    """Returns the split with the largest Q above 0 (or 3), and this Q (or 0), computed from its definition."""
    n = distances.shape[-1]
    found = (3, 0.0)
    for at in range(3, n - 2):
        x, y, m, k = distances[:at, :at], distances[at:, at:], at, n - at
        q = m * k / n * (2 * distances[:at, at:].mean() - x.sum() / (m * (m - 1)) - y.sum() / (k * (k - 1)))
        if q > found[1]:
            found = (at, q)
    return found


out = []
for rows in json.load(sys.stdin):
    logs = np.log(np.array(rows))
    n = logs.shape[1]
    all_distances = []
    for row in logs:
        distances = np.abs(row[:, None] - row[None, :])
        all_distances.append(distances / (distances.sum() / (n * (n - 1))))
    found = [best(distances) for distances in all_distances]
    row = int(np.argmax([q for _, q in found]))
    at, q = found[row]
    reached = 1
    for _ in range(200):
        order = generator.permutation(n)
        reached += max(best(d[np.ix_(order, order)])[1] for d in all_distances) >= q
    out.append([row, at, q, reached / 201])
json.dump(out, sys.stdout)
