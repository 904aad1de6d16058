"""Calculates statistics of each op with numpy and SciPy, over all threads and for each thread. For
each variable: the mean, the standard deviation, the extremes, and the means of 16 buckets of almost
equally many values, in sorted order. For each pair of variables: both correlations (Pearson's and
Spearman's) and the probabilities of each pair of their buckets."""

import sys
import numpy as np, pyarrow.parquet as pq
from scipy.stats import rankdata
names = ["duration_ns"] + [f"counter-{i}" for i in range(4)]
table = pq.read_table(sys.argv[1], columns=["op_id", "thread", *names])
op, thread = (table[c].to_numpy() for c in ("op_id", "thread"))
values = [table[c].to_numpy() for c in names]
def scope(chosen):
    v = [x[chosen].astype(np.float64) for x in values]
    n, total = len(v[0]), 0.0
    edges = [n * b // 16 for b in range(17)]
    ranks, buckets = [], []
    for x in v:
        order = np.argsort(x, kind="stable")
        s = x[order]
        total += s.mean() + s.std(ddof=1) + s[0] + s[-1]
        total += sum(s[a:b].mean() for a, b in zip(edges, edges[1:]) if b > a)
        bucket = np.empty(n, np.int64)
        bucket[order] = np.searchsorted(edges, np.arange(n), side="right") - 1
        ranks.append(rankdata(x))
        buckets.append(bucket)
    with np.errstate(all="ignore"):
        total += np.nansum(np.corrcoef(v)) + np.nansum(np.corrcoef(ranks))
    for i in range(len(v)):
        for j in range(i):
            total += np.bincount(buckets[i] * 16 + buckets[j], minlength=256).max() / n
    return total
total = 0.0
for o in np.unique(op):
    of_op = np.flatnonzero(op == o)
    total += scope(of_op)
    for t in np.unique(thread[of_op]):
        total += scope(of_op[thread[of_op] == t])
print(total)
