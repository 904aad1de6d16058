"""Checks the kernels and the idle time that HolisticTraceAnalysis finds in a trace."""

import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
types, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
kernels = {row["name"]: (row["sum (us)"], row["max (us)"]) for _, row in kernels.iterrows()}
assert kernels == {"matmul": (60, 40), "softmax": (5, 5)}, kernels
breakdown = analysis.get_temporal_breakdown(visualize=False).iloc[0]
# The first kernel begins 110 us before the last kernel ends. The two gaps between kernels are 20 us
# and 25 us long.
assert breakdown["kernel_time(us)"] == 110 and breakdown["idle_time(us)"] == 45, breakdown
