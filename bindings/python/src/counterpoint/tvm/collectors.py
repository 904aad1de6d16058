"""Collectors: what is measured around each op, beside its time.

A collector of your own says once, in `metrics`, what it gives:

    class Allocations(Collector):
        metrics = {"allocations": Count, "high water": Ratio}

        def start(self, device):
            return allocator.snapshot()

        def stop(self, state):
            now = allocator.snapshot()
            return {"allocations": Count(now.calls - state.calls), "high water": Ratio(now.high)}

`start` and `stop` run on the op's thread around the recorder's own readings, with the GIL held, so
that their time is in no op's duration; several threads may be in them at once. An error in either
never reaches the model: it is the loss `collector_failed`. Only a KeyboardInterrupt or a SystemExit,
which is for whoever runs the model, ends the model's call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Optional

from counterpoint.metrics import Count, Duration, Metric, Percent, Ratio, Text
from counterpoint.tvm import _native

__all__ = ["Collector", "CounterCollector", "PAPIMetricCollector"]

# As in counterpoint/collector.h.
_KINDS: dict[type, int] = {Count: 0, Duration: 1, Percent: 2, Ratio: 3, Text: 4}


class Collector:
    """Measures something of its own around each op."""

    metrics: ClassVar[Mapping[str, type]] = {}
    """Every metric that `stop` may give: its name, which becomes a column, and its kind."""

    def init(self, devices: Sequence[Any]) -> None:
        """Before the first op: find out what there is to measure on these devices."""

    def start(self, device: Any) -> object:
        """Before an op on `device` (that of its last tensor argument); what it returns goes to
        `stop`. `None`: nothing is measured this time."""
        raise NotImplementedError

    def stop(self, state: Any) -> Mapping[str, Metric]:
        """Behind the op. A metric that is left out is missing, not 0."""
        raise NotImplementedError


class CounterCollector(Collector):
    """Counters of the operating system and the processor, read natively.

    `counters`: for each device the names, as `counterpoint list` shows them; also PAPI's
    (`PAPI_FP_OPS`) and libpfm's (`perf::CYCLES`). `None`: what
    `COUNTERPOINT_<DEVICE>_METRICS` says, else the default set, which on a processor without
    hardware counters is empty. A device whose counters this
    machine has no source for is left out, with one warning that says what would help.
    """

    def __init__(self, counters: Optional[Mapping[Any, Sequence[str]]] = None) -> None:
        self.counters = {device: list(names) for device, names in (counters or {}).items()}

    def start(self, device: Any) -> object:
        """Nothing: the recorder reads counters by itself."""
        return None

    def stop(self, state: Any) -> Mapping[str, Metric]:
        """Nothing: the recorder reads counters by itself."""
        return {}


PAPIMetricCollector = CounterCollector
"""What TVM's former collector was called."""


def kind_of(device: Any) -> str:
    """`cpu`, `cuda` … of a `tvm.runtime.Device`."""
    return str(device).partition(":")[0].partition("(")[0]


def counters_of(
    collectors: Sequence[Collector],
) -> tuple[Optional[list[str]], dict[str, str], list[Collector]]:
    """Names for the processor, variables for other kinds of devices, and the users' collectors.

    The names are `None` if a collector wants the defaults."""
    names: list[str] = []
    variables: dict[str, list[str]] = {}
    defaults = False
    own = []
    for collector in collectors:
        if not isinstance(collector, CounterCollector):
            own.append(collector)
            continue
        defaults = defaults or not collector.counters
        for device, asked in collector.counters.items():
            kind = kind_of(device)
            here = names if kind == "cpu" else variables.setdefault(kind, [])
            here += [name for name in asked if name not in here]
    if not variables:
        return (None if defaults else names), {}, own
    # The program knows which kinds have a source; it is asked through their variables, which count
    # only where no list is given.
    if names:
        variables["cpu"] = names
    lists = {f"COUNTERPOINT_{k.upper()}_METRICS": ";".join(v) for k, v in variables.items()}
    return None, lists, own


class Registered:
    """A user's collector while a profile is open."""

    def __init__(self, native: _native.Native, collector: Collector, devices: Sequence[Any]) -> None:
        import tvm

        self._native = native
        self._collector = collector
        self._devices: dict[tuple[int, int], Any] = {}
        self._device = tvm.runtime.device
        self._local = threading.local()
        collector.init(devices)
        # Resolved once: `stop` writes into slots of fixed number.
        self._slots = {name: i for i, name in enumerate(collector.metrics)}
        self._kinds = list(collector.metrics.values())
        for name, kind in collector.metrics.items():
            if kind not in _KINDS:
                raise TypeError(f"metric {name!r}: {kind!r} is none of the five kinds")
        slots = [(name, _KINDS[kind]) for name, kind in collector.metrics.items()]
        _native.pass_interrupts()
        self._number = native.collector(self._start, self._stop, slots) if slots else -1

    def remove(self) -> None:
        """The profile is over."""
        if self._number >= 0:
            self._native.collector_remove(self._number)

    def _start(self, device_type: int, device_id: int) -> Any:
        device = self._devices.get((device_type, device_id))
        if device is None:
            device = self._device(device_type, device_id)
            self._devices[(device_type, device_id)] = device
        state = self._collector.start(device)
        # States stay in Python: nothing of them passes through the FFI.
        stack = self._local.__dict__.setdefault("stack", [])
        stack.append(state)
        return len(stack)

    def _stop(self, depth: int, slots: Any, count: int) -> Any:
        stack = self._local.stack
        # What lies above was left behind by ops that threw.
        state = stack[depth - 1]
        del stack[depth - 1 :]
        if state is None:
            return None
        metrics = self._collector.stop(state)
        values = (_native.Value * count).from_address(int(slots.value))
        kept = []
        for name, metric in metrics.items():
            slot = self._slots[name]
            if type(metric) is not self._kinds[slot]:
                raise TypeError(f"metric {name!r} is {metric!r}, not {self._kinds[slot].__name__}")
            value = values[slot]
            if isinstance(metric, Count):
                if not -(2**63) <= metric.value < 2**63:
                    raise OverflowError(f"metric {name!r}: {metric.value} has more than 64 bits")
                value.count = metric.value
            elif isinstance(metric, Text):
                kept.append(metric.string.encode())
                value.text = kept[-1]
            else:
                value.number = float(metric)
            value.filled = 1
        # The recorder copies texts when this has returned.
        self._local.kept = kept
        return None
