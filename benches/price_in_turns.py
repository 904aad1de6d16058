"""Starts a program several times at once, alone and under `counterpoint run` with different arguments (each a
"way"), and has the processes take turns with their steps. Prints for each way what `benches/price.py` prints,
as lines `WAY-NAME VALUE UNIT`.

    price_in_turns.py COUNTERPOINT PROFILES WAY=ARGUMENTS... -- PROGRAM ARGUMENTS...

A WAY without ARGUMENTS (`alone=`) runs the program without Counterpoint. `WAY=+ARGUMENT` does the same, with
one more argument for the program. Otherwise, ARGUMENTS are arguments of `counterpoint run`, separated by
spaces. Profiles are written to the directory PROFILES.

If whole processes of ten seconds ran one after the other, their times would differ by more than the recorder
costs, because a shared machine is not equally fast in two periods of ten seconds. In a fraction of a second,
its speed changes less. So each process does a single step, and then waits until each of the others has done
one. The order is chosen at random for each round of steps. At most one of the processes runs at a time, also
while it starts and ends. So changes of the machine's speed affect all ways almost equally, and hardly the
differences between them.

`typical-cpu` and `typical-wall` estimate the total times of all steps so that a disturbance of a few steps by
other programs hardly changes the estimates. The time of each step is compared with that of the step with the
same number in the way `alone`, which ran within a few seconds of it. The mean of the middle half of these
differences is added to the mean of the middle half of the times in `alone`. The sum is multiplied by the
number of steps.

`quiet-cpu` and `quiet-wall` are the times that all steps would take if each took as long as the mean of the
shortest eighth, which are disturbed least. Where other virtual machines use the same cores, they can make
several steps in a row a third longer.

All processes keep the memory that they free (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_). Otherwise,
glibc returns some of it to the kernel, and a step has between 0 and 6,000 page faults, up to 5 % of its time.
The number of page faults depends on which memory is free at the end of the heap, and so on chance.

The program says `turn` in a line of its own before each step, and waits for a line on its standard input. At
its end it prints Google Benchmark's JSON, in which `cpu_time` and `real_time` are the means per step, and
`steps` contains the times of each step.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import price

# A pause after each step: OpenMP's threads spin for some milliseconds while they wait for more
# work.
CALM_S = 0.03
KEEPS_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}


class Way:

    def __init__(self, name, arguments, counterpoint, profiles, command):
        self.name = name
        self.counterpoint = counterpoint
        is_recorded = arguments != "" and not arguments.startswith("+")
        self.profile = os.path.join(profiles, name + ".cpt") if is_recorded else None
        self.result = tempfile.NamedTemporaryFile("r", suffix=".json")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "price.py")
        waiting = [sys.executable, "-E", script, "wait", self.result.name]
        before, after = [], []
        if is_recorded:
            before = [counterpoint, "run", *arguments.split(), "-o", self.profile, "--"]
        elif arguments:
            after = [arguments[1:]]
        self.process = subprocess.Popen(
            before + waiting + command + after,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | KEEPS_MEMORY,
        )
        self.found = None
        self.until_turn()

    def until_turn(self):
        """Reads what the program prints up to its next turn, or to its end."""
        for line in self.process.stdout:
            if line == "turn\n":
                return
            if line.startswith("{"):
                self.found = json.loads(line)["benchmarks"][0]
        code = self.process.wait()
        if code != 0:
            sys.exit(f"{self.name}: exit code {code}")

    def has_ended(self):
        return self.process.returncode is not None

    def turn(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.until_turn()

    def readings(self):
        yield from price.used(json.load(self.result), self.found)
        if self.profile is not None:
            yield from price.stated(self.counterpoint, self.profile)


def middle(values):
    """Returns the mean of the middle half of the values."""
    cut = len(values) // 4
    return statistics.mean(sorted(values)[cut : len(values) - cut])


def of_steps(way, alone):
    """Yields `typical-cpu`, `quiet-cpu`, `typical-wall` and `quiet-wall`."""
    for clock in ("cpu", "wall"):
        own, theirs = (of.found["steps"][clock] for of in (way, alone))
        more = middle([a - b for a, b in zip(own, theirs, strict=True)])
        yield f"typical-{clock}", (middle(theirs) + more) * len(own), "ns"
        yield f"quiet-{clock}", statistics.mean(sorted(own)[: max(1, len(own) // 8)]) * len(own), "ns"


def main():
    cut = sys.argv.index("--")
    counterpoint, profiles, *ways = sys.argv[1:cut]
    os.makedirs(profiles, exist_ok=True)
    random.shuffle(ways)
    all = []
    for way in ways:
        name, arguments = way.split("=", 1)
        all.append(Way(name, arguments, counterpoint, profiles, sys.argv[cut + 1 :]))
        time.sleep(CALM_S)
    going = list(all)
    while going:
        random.shuffle(going)
        for way in going:
            way.turn()
            time.sleep(CALM_S)
        going = [way for way in going if not way.has_ended()]
    alone = next(way for way in all if way.name == "alone")
    for way in all:
        for name, value, unit in [*way.readings(), *of_steps(way, alone)]:
            print(f"{way.name}-{name} {value} {unit}")


main()
