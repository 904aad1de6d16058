"""Collectors measure values around each op, in addition to its time.

A collector of your own lists in `metrics` what it measures:

    class Allocations(Collector):
        metrics = {"allocations": Count, "high water": Ratio}

        def start(self, device):
            return allocator.snapshot()

        def stop(self, state):
            now = allocator.snapshot()
            return {"allocations": Count(now.calls - state.calls), "high water": Ratio(now.high)}

`start` and `stop` run on the op's thread and hold the GIL. The recorder reads the clock after `start` and
before `stop`, so the time of these two methods is not part of the op's duration. Several threads may call
`start` and `stop` at the same time. An exception in `start` or `stop` is not passed on to the model. It is
counted as the loss `collector_failed`, which names the first exception, and a warning appears at the end of
the profile. Only a KeyboardInterrupt or a SystemExit in these methods ends the model's call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Optional, Union

from counterpoint._arguments import described, names_of
from counterpoint.errors import ArgumentError
from counterpoint.metrics import Count, Duration, Metric, Percent, Ratio, Text
from counterpoint.tvm import _cuda, _native

__all__ = ["Collector", "CounterCollector", "PAPIMetricCollector"]

# The number of each kind of metric, as in counterpoint/collector.h.
_KINDS: dict[type, int] = {Count: 0, Duration: 1, Percent: 2, Ratio: 3, Text: 4}


class Collector:
    """Measures values of your own around each op."""

    metrics: ClassVar[Mapping[str, type]] = {}
    """Every metric that `stop` may return: its name, which becomes a column, and its kind."""

    def init(self, devices: Sequence[Any]) -> None:
        """Called before the first op, so that the collector can find out what it can measure on these
        devices."""

    def start(self, device: Any) -> object:
        """Called before an op. `device` is the device of the op's last tensor argument, or the CPU if the op
        has none. The result is passed to `stop`. If the result is `None`, nothing is measured for this op."""
        raise NotImplementedError

    def stop(self, state: Any) -> Mapping[str, Metric]:
        """Called after the op. Returns the metrics by name. A metric that is left out counts as missing, not
        as 0."""
        raise NotImplementedError


class CounterCollector(Collector):
    """Reads counters of the operating system, the processor and NVIDIA's devices, without Python code around
    each op.

    `counters`: a mapping from devices to names of counters. The names are those that `counterpoint list`
    shows, or names of PAPI (`PAPI_FP_OPS`; for a device of CUDA, `cuda:::sm__cycles_elapsed.sum`) or libpfm
    (`perf::CYCLES`). Instead, `counters` may be a list of devices, or `None` for the processor. Then the
    environment variable `COUNTERPOINT_<DEVICE>_METRICS` chooses the counters. If this variable is not set,
    the device's default counters are read. A processor has no default counters if programs cannot read its
    hardware counters, or need a system call to do so. If the counters of a device are not supported on this
    machine, the device is left out, with one warning that says what would help.
    """

    def __init__(
        self, counters: Union[Mapping[Any, Sequence[str]], Sequence[Any], None] = None
    ) -> None:
        self.counters: dict[Any, Optional[list[str]]] = {}
        if isinstance(counters, Mapping):
            for device, names in counters.items():
                self.counters[device] = names_of(names, f"the counters of {kind_of(device)}")
        elif isinstance(counters, (list, tuple)) and not _are_names(counters):
            for device in counters:
                kind_of(device)
                self.counters[device] = None
        elif counters is not None:
            raise ArgumentError(
                f"{type(self).__name__} takes a mapping from devices to lists of counters"
                " ({tvm.cpu(): [\"page-faults\"]}) or a list of devices, not"
                f" {described(counters)}"
            )

    def start(self, device: Any) -> object:
        """Does nothing, because the recorder reads counters itself."""
        return None

    def stop(self, state: Any) -> Mapping[str, Metric]:
        """Does nothing, because the recorder reads counters itself."""
        return {}


class PAPIMetricCollector(CounterCollector):
    """A `CounterCollector` under the name of TVM's former collector. It accepts the arguments that TVM
    documented."""


def _are_names(listed: Sequence[Any]) -> bool:
    """Whether a list has names of counters, which is an error: a list may have only devices."""
    return any(isinstance(one, str) and one.partition(":")[0] not in _DEVICES for one in listed)


# The known kinds of devices, as in crates/names/src/devices.rs.
_DEVICES = (
    "cpu", "cpu_pinned", "cuda", "cuda_host", "rocm", "rocm_host", "opencl", "vulkan", "metal",
    "oneapi", "hexagon",
)


def kind_of(device: Any) -> str:
    """Returns the kind of a `tvm.runtime.Device`: `cpu`, `cuda` …"""
    kind = str(device).partition(":")[0].partition("(")[0]
    if kind not in _DEVICES:
        raise ArgumentError(
            f"{described(device)} is not a device whose counters are known: use tvm.cpu(),"
            f" tvm.cuda() or another of {', '.join(_DEVICES)}"
        )
    return kind


def checked(collectors: object) -> list[Collector]:
    if isinstance(collectors, (Collector, type)) or not isinstance(collectors, Iterable):
        raise ArgumentError(f"collectors= must be a list of collectors, not {described(collectors)}")
    found = list(collectors)
    for one in found:
        if not isinstance(one, Collector):
            made = " (make one of it: write parentheses after its name)"
            is_class = isinstance(one, type) and issubclass(one, Collector)
            raise ArgumentError(
                f"collectors= has {described(one)}, which is not a Collector"
                f"{made if is_class else ''}"
            )
    return found


@dataclass
class Chosen:
    """What the collectors of a profile ask for."""

    # The names of the counters. `None` means that environment variables, or else the default sets,
    # choose the counters.
    names: Optional[list[str]]
    # Environment variables for the program `counterpoint`, each with the counters of a kind of
    # device. Empty unless kinds other than `cpu` and `cuda` were asked for.
    variables: dict[str, str]
    own: list[Collector]
    devices: list[_cuda.DeviceCounters]
    counts: bool


def counters_of(collectors: Sequence[Collector]) -> Chosen:
    names: list[str] = []
    variables: dict[str, list[str]] = {}
    defaults = others = counts = False
    own: list[Collector] = []
    devices: list[_cuda.DeviceCounters] = []
    for collector in collectors:
        if not isinstance(collector, CounterCollector):
            own.append(collector)
            continue
        counts = True
        defaults = defaults or not collector.counters
        for device, asked in collector.counters.items():
            kind = kind_of(device)
            if kind == "cuda":
                devices.append(_cuda.DeviceCounters(_cuda.index_of(device), asked))
                continue
            if asked is None:
                # For kinds other than `cpu`, the program `counterpoint` uses the user's environment
                # variable without being asked.
                defaults = defaults or kind == "cpu"
                others = others or kind != "cpu"
                continue
            here = names if kind == "cpu" else variables.setdefault(kind, [])
            here += [name for name in asked if name not in here]
    if not variables and not others:
        return Chosen(None if defaults else names, {}, own, devices, counts)
    # Only the program `counterpoint` knows which kinds of devices have counters. So the program
    # gets the names in environment variables. These variables only have an effect without a list of
    # counters, so the list is `None`. If the user named only devices other than the processor, an
    # empty variable keeps the processor's counters from being read.
    if not defaults:
        variables["cpu"] = names
    lists = {f"COUNTERPOINT_{k.upper()}_METRICS": ";".join(v) for k, v in variables.items()}
    return Chosen(None, lists, own, devices, counts)


def _slots(native: _native.Native, collector: Collector) -> list[tuple[str, int]]:
    """Returns the names and kinds of a collector's metrics. Raises an error if a metric is invalid, or if its
    name is already used."""
    of, metrics = type(collector).__name__, collector.metrics
    if not isinstance(metrics, Mapping):
        raise ArgumentError(
            f"{of}.metrics must be a mapping from names to kinds, such as {{\"hits\": Count}}, not"
            f" {described(metrics)}"
        )
    if not metrics:
        raise ArgumentError(
            f"{of}.metrics is empty: it must list what stop returns, such as {{\"hits\": Count}}"
        )
    kept: list[tuple[str, int]] = []
    for name, kind in metrics.items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise ArgumentError(f"{of}.metrics: {described(name)} is not a name")
        if not isinstance(kind, type) or kind not in _KINDS:
            kinds = ", ".join(known.__name__ for known in _KINDS)
            raise ArgumentError(
                f"{of}.metrics: the kind of {name!r} is one of {kinds}, not {described(kind)}"
            )
        why = native.metric_name(name)
        if why is not None:
            raise ArgumentError(
                f"{of}.metrics: {name!r} cannot be a metric: {why} (capitals, separators and units"
                " make no difference); give it another name"
            )
        kept.append((name, _KINDS[kind]))
    return kept


class Registered:

    def __init__(self, native: _native.Native, collector: Collector, devices: Sequence[Any]) -> None:
        import tvm

        self._native = native
        self._collector = collector
        self._devices: dict[tuple[int, int], Any] = {}
        self._device = tvm.runtime.device
        self._local = threading.local()
        self.failure: Optional[str] = None
        self.failures = 0
        slots = _slots(native, collector)
        collector.init(devices)
        # `stop` must write each metric to the same slot every time.
        self._slots = {name: i for i, (name, _) in enumerate(slots)}
        self._kinds = list(collector.metrics.values())
        _native.pass_interrupts()
        self._number = native.collector(self._start, self._stop, slots)

    def remove(self) -> None:
        """Removes the collector at the end of the profile."""
        self._native.collector_remove(self._number)

    def _start(self, device_type: int, device_id: int) -> Any:
        try:
            return self._start_one(device_type, device_id)
        except Exception as error:
            self._failed("start", error)
            raise

    def _stop(self, depth: int, slots: Any, count: int) -> Any:
        try:
            return self._stop_one(depth, slots, count)
        except Exception as error:
            self._failed("stop", error)
            raise

    def _failed(self, where: str, error: Exception) -> None:
        """Counts an error of the collector, and keeps the text of the first one. Converting an error to
        text may itself raise an error, which must not leave this function."""
        self.failures += 1
        if self.failure is not None:
            return
        name = type(self._collector).__name__
        try:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        except Exception:
            said = type(error).__name__
        self.failure = f"{name}.{where} raised {said}"

    def _start_one(self, device_type: int, device_id: int) -> Any:
        device = self._devices.get((device_type, device_id))
        if device is None:
            device = self._device(device_type, device_id)
            self._devices[(device_type, device_id)] = device
        state = self._collector.start(device)
        # The state stays in Python. Only its position in the stack is passed through the FFI.
        stack = self._local.__dict__.setdefault("stack", [])
        stack.append(state)
        return len(stack)

    def _stop_one(self, depth: int, slots: Any, count: int) -> Any:
        stack = self._local.stack
        # The states above this op's state in the stack belong to ops that threw an exception.
        state = stack[depth - 1]
        del stack[depth - 1 :]
        if state is None:
            return None
        metrics = self._collector.stop(state)
        if not isinstance(metrics, Mapping):
            raise TypeError(f"stop returned {described(metrics)}, not a mapping from metrics to values")
        values = (_native.Value * count).from_address(int(slots.value))
        kept = []
        for name, metric in metrics.items():
            slot = self._slots.get(name)
            if slot is None:
                raise ValueError(f"stop returned {name!r}, which is not in metrics")
            if type(metric) is not self._kinds[slot]:
                raise TypeError(f"metric {name!r} is {metric!r}, not a {self._kinds[slot].__name__}")
            value = values[slot]
            if isinstance(metric, Count):
                if not isinstance(metric.value, int):
                    raise TypeError(f"metric {name!r} is {metric!r}, not a whole number")
                if not -(2**63) <= metric.value < 2**63:
                    raise OverflowError(f"metric {name!r}: {metric.value} has more than 64 bits")
                value.count = metric.value
            elif isinstance(metric, Text):
                kept.append(metric.string.encode())
                value.text = kept[-1]
            else:
                value.number = float(metric)
            value.filled = 1
        # Keeps the texts alive, because the recorder copies them after this function has returned.
        self._local.kept = kept
        return None
