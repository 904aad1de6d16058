"""Defines the counters for the checks of a PMU, and their expected counts in programs/known.c. On a machine without a
PMU, `run.py --stand-in` counts page faults and writes to an address, which Linux counts by itself, instead of
instructions, branches and loads. This tests the checks themselves. With `--stand-in broken`, the loops of known.c are
longer than the checks expect, and each check of a count must fail."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field

import machine

# A call of loop_100000 has this many more iterations than one of loop_10000. The same is true of
# the load_… ops.
MORE = 90_000
# A round calls each op once. LOOPS and LOADS are the iterations of all loop_… ops and of all load_…
# ops in a round.
LOOPS, LOADS = 111_000, 110_000


@dataclass(frozen=True)
class Counter:
    """A counter, and its counts in an iteration of loop_… and of load_…."""

    typed: str
    in_loop: float
    in_load: float
    # The allowed relative error.
    tolerance: float = 0.001

    def named(self, typed: str) -> Counter:
        return Counter(typed, self.in_loop, self.in_load, self.tolerance)

    def a_round(self) -> float:
        return self.in_loop * LOOPS + self.in_load * LOADS


@dataclass(frozen=True)
class Events:
    """The counters that the checks use on a machine."""

    instructions: Counter
    branches: Counter
    loads: Counter
    # Another name of `instructions`, which Counterpoint does not recognise as the same counter.
    again: Counter
    # A group that contains this counter is read with system calls.
    beside: str
    # These counters are too many for one group. The first is `instructions`, the last is
    # `branches`.
    many: list[str]
    # `turns` is the value of `-e` for counters that take turns (are multiplexed). `in_turns` lists
    # the counters of `turns` whose counts are known.
    turns: str
    in_turns: list[Counter]
    # The counters by the source of their names (perf, PAPI, the vendor).
    names: dict[str, list[Counter]]
    # The counters whose counts are compared with PAPI's own counts, by their names in PAPI.
    of_papi: dict[str, Counter]
    # The cost of reading is measured with the first counter of this list, then with the first two,
    # and so on.
    priced: list[str]
    # The name of `instructions` for perf_event_open and perf stat.
    judged: str
    # Top-down metrics. If `parts` has counters, their counts add up to that of the first counter of
    # `slots`.
    slots: list[str]
    parts: list[str]
    stand_in: bool = False
    environment: dict[str, str] = field(default_factory=dict)


def flags(stands_in: str | None) -> list[str]:
    return {None: [], "kernel": ["-DSTAND_IN"]}.get(stands_in, ["-DSTAND_IN", "-DBROKEN"])


def vendor() -> str:
    if platform.machine() == "aarch64":
        return "arm"
    name = machine.first_line("/proc/cpuinfo", "vendor_id")
    return {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(name, "")


RAW = {"intel": ("rc0", "rc4"), "amd": ("rc0", "rc2"), "arm": ("r08", "r21")}
VENDOR = {
    "intel": ["inst_retired.any_p", "br_inst_retired.all_branches", "mem_inst_retired.all_loads"],
    "amd": ["ex_ret_instr", "ex_ret_brn", "ls_dispatch.ld_dispatch"],
    "arm": ["inst_retired", "br_retired", "ld_retired"],
}
INTEL_SLOTS = ["slots", "topdown-retiring", "topdown-bad-spec", "topdown-fe-bound", "topdown-be-bound"]
ZEN4_SLOTS = [
    "ls_not_halted_cyc",
    "ex_ret_ops",
    "de_src_op_disp.all",
    "de_no_dispatch_per_slot.no_ops_from_frontend",
    "de_no_dispatch_per_slot.backend_stalls",
    "de_no_dispatch_per_slot.smt_contention",
]


def real() -> Events:
    instructions = Counter("instructions:u", 2, 3)
    branches = Counter("branches:u", 1, 1)
    # Some processors count a load when it is dispatched, even if its instruction does not retire.
    loads = Counter("L1-dcache-loads:u", 0, 1, 0.01)
    raw, raw_branches = RAW.get(vendor(), RAW["intel"])
    those = [name for name in machine.GENERIC if name not in ("page-faults", "minor-faults", "branches")]
    works = [name for name in those if not machine.why_not([name])]
    works.sort(key=lambda name: name != "instructions")
    many = [f"{name}:u" for name in works] + ["branches:u"]
    names = {
        "perf's": [
            instructions,
            branches,
            instructions.named("cpu/instructions/u"),
            branches.named("branch-instructions:u"),
        ],
        "raw numbers": [instructions.named(f"{raw}:u"), branches.named(f"{raw_branches}:u")],
        "PAPI's": [
            instructions.named("PAPI_TOT_INS:u"),
            instructions.named("perf::INSTRUCTIONS:u"),
            instructions.named("perf::PERF_COUNT_HW_INSTRUCTIONS:u"),
            branches.named("PAPI_BR_INS:u"),
        ],
    }
    if "L1-dcache-loads" in works:
        names["perf's"].append(loads)
        names["PAPI's"].append(loads.named("PAPI_L1_DCR:u"))
    known = [instructions, branches, loads]
    names["the vendor's"] = [
        counter.named(f"{name}:u") for counter, name in zip(known, VENDOR.get(vendor(), []))
    ]
    if platform.machine() == "aarch64":
        del names["perf's"][2]  # The PMU of AArch64 is not called cpu.
    slots = {"intel": INTEL_SLOTS, "amd": ZEN4_SLOTS}.get(vendor(), [])
    return Events(
        instructions=instructions,
        branches=branches,
        loads=loads,
        again=instructions.named(f"{raw}:u"),
        beside="page-faults:u",
        many=many,
        turns=",".join(many),
        in_turns=[instructions, branches],
        names=names,
        of_papi={"PAPI_TOT_INS": instructions, "PAPI_BR_INS": branches},
        priced=["instructions", "branches", "cycles", "branch-misses"],
        judged="instructions",
        slots=slots,
        parts=INTEL_SLOTS[1:] if vendor() == "intel" else [],
    )


def stand_in(address: str, broken: bool) -> Events:
    """Returns the counters for `--stand-in`. Linux counts page faults, and writes to an address, exactly even without a
    PMU."""
    faults = Counter("page-faults:u", 0.01, 0.01)
    writes = Counter(f"mem:{address}/8:w:u", 0.001, 0.001)
    elsewhere = [f"mem:{int(address, 16) + 8 * i:#x}/8:w:u" for i in range(1, 5)]
    # Three rounds of five calls: a round with three scaled counts (those whose counter runs only
    # half of the time), one with exact counts only, and one without counts. A step of the last
    # round comes first, because the first call is that of `warm`.
    scaled = ["0:5@500", "0:50@500", "0:500@500", "0:100", "0:1000"]
    exact = ["0:10", "0:100", "0:1000", "0:100", "0:1000"]
    missing = ["0:7@0"] * 5
    steps = ":".join([missing[0], *scaled, *exact, *missing[1:]])
    if broken:
        steps = steps.replace("1000", "1100").replace("500@", "550@")
    turning = "turning"
    ipc = "sim/cycles,readings=0:500/;sim/instructions,readings=0:" + ("0/" if broken else "1000/")
    retiring = 700 if broken else 300
    return Events(
        instructions=faults,
        branches=writes,
        loads=faults.named("minor-faults:u"),
        again=faults.named("minor-faults:u"),
        beside="alignment-faults:u",
        # With `broken`, these counters do fit into one group.
        many=[faults.typed, writes.typed] if broken else [faults.typed, *elsewhere, writes.typed],
        turns=f"sim/{turning},readings={steps}/",
        in_turns=[Counter(turning, 0.01, 0.01)],
        names={
            "perf's": [faults, faults.named("faults:u"), faults.named("minor-faults:u"), writes],
            "PAPI's": [faults.named("perf::PAGE-FAULTS:u")],
            "the vendor's": [faults.named("no_such.counter:u")],
        },
        of_papi={"perf::PAGE-FAULTS": faults},
        priced=["page-faults", "minor-faults"],
        judged="page-faults",
        slots=[f"sim/{name},readings=0:{n}/" for name, n in zip(INTEL_SLOTS, (1000, retiring, 100, 200, 400))],
        parts=INTEL_SLOTS[1:],
        stand_in=True,
        environment={"COUNTERPOINT_CPU_METRICS": ipc},
    )
