"""Reads a trace with HolisticTraceAnalysis, and prints the kernels that it finds."""

import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
types, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
kernels = {row["name"]: (row["sum (us)"], row["max (us)"]) for _, row in kernels.iterrows()}
assert kernels == {"matmul": (60, 40), "softmax": (5, 5)}, kernels
breakdown = analysis.get_temporal_breakdown(visualize=False).iloc[0]
# The time from the first begin to the last end is 110 us. In it, nothing ran for 20 us, and again for 25 us.
assert breakdown["kernel_time(us)"] == 110 and breakdown["idle_time(us)"] == 45, breakdown
