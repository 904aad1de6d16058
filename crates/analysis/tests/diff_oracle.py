"""Checks the statistics of paired differences with numpy and scipy.

Each input line has one case: rows of differences, separated by `;`, and after `|` the ends of the interval of the first
row. For the first row of each case, prints the Hodges-Lehmann estimate, 1 if the interval is that of scipy's exact test
(0 if not), |t|, and the standard deviation. Then prints the adjusted p of each row."""

import itertools, sys, warnings
import numpy as np
from scipy import stats
warnings.simplefilter("ignore")
for line in sys.stdin:
    cases, ends = line.split("|")
    rows = np.array([[float(v) for v in row.split()] for row in cases.split(";")])
    first, n = rows[0], rows.shape[1]
    walsh = [(first[i] + first[j]) / 2 for i in range(n) for j in range(i, n)]
    low, high = (float(v) for v in ends.split())
    step = 1e-7
    def p(shift):
        return stats.wilcoxon(first - shift, method="exact").pvalue
    inside = p(low + step) > 0.05 and p(high - step) > 0.05
    outside = p(low - step) <= 0.05 and p(high + step) <= 0.05
    wins = []
    for row in rows:
        cap = np.sort(np.abs(row))[::-1][n // 4]
        wins.append(np.clip(row, -cap, cap))
    wins = np.array(wins)
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=n)))
    observed = np.abs(stats.ttest_1samp(wins, 0, axis=1).statistic)
    flipped = np.abs(np.array([stats.ttest_1samp(signs * row, 0, axis=1).statistic for row in wins]))
    order = np.argsort(-observed)
    adjusted, before = np.zeros(len(rows)), 0.0
    for k, row in enumerate(order):
        largest = flipped[order[k:]].max(axis=0)
        before = max(before, float(np.mean(largest >= observed[row] * (1 - 1e-9))))
        adjusted[row] = before
    t = abs(stats.ttest_rel(first, np.zeros(n)).statistic)
    print(repr(float(np.median(walsh))), int(inside and outside), repr(float(t)),
          repr(float(np.std(first, ddof=1))), *[repr(float(v)) for v in adjusted])
