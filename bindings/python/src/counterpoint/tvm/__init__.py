"""Reports the time and the counters of each op that a Relax virtual machine of TVM calls. Works with TVM's
stock wheels.

    import counterpoint.tvm as cp

    with cp.profile(vm, counters=["page-faults", "task-clock"]) as prof:
        vm["main"](x, *params)
    print(prof.report())

Import this package before the model is compiled or loaded, because parallel launches of modules that are
loaded earlier cannot be attributed to their ops. The import does not change results and records nothing. It
replaces methods of `VirtualMachine`. While no profile is open, the new methods behave as the old ones.

docs/tvm.md has a complete example, explains the numbers, and describes what replaces TVM's own profiler.
"""

from __future__ import annotations

from counterpoint._session import CounterpointWarning
from counterpoint.errors import (
    ArgumentError,
    ConflictError,
    CounterpointError,
    NotInstalledError,
    ReportError,
    UnsupportedError,
)
from counterpoint.loops import LoopReport, LoopRow
from counterpoint.metrics import Count, Duration, Metric, Percent, Ratio, Text
from counterpoint.report import Loss, Report
from counterpoint.tvm._compile import loops
from counterpoint.tvm._loops import instrument_module
from counterpoint.tvm._profile import Profile, prepare, profile, profile_function
from counterpoint.tvm.collectors import Collector, CounterCollector, PAPIMetricCollector

__all__ = [
    "ArgumentError",
    "Collector",
    "ConflictError",
    "Count",
    "CounterCollector",
    "CounterpointError",
    "CounterpointWarning",
    "Duration",
    "LoopReport",
    "LoopRow",
    "Loss",
    "Metric",
    "NotInstalledError",
    "PAPIMetricCollector",
    "Percent",
    "Profile",
    "Ratio",
    "Report",
    "ReportError",
    "Text",
    "UnsupportedError",
    "instrument_module",
    "loops",
    "profile",
    "profile_function",
]

prepare()
