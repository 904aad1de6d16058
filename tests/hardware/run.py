"""Checks Counterpoint on real hardware: what this machine has is checked, what it lacks is named.

    python3 tests/hardware/run.py --dist dist [--out FILE] [--only pmu|nvidia] [--quick]

`cargo xtask hardware` builds a release and runs this; a machine without Rust needs only the release, this
folder and Python 3.9. The exit status is 1 if a check failed. Nothing of the machine is changed."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import machine
import nvidia
import pmu
from result import Result


@dataclass
class Place:
    """The release, the work folder and the tools of this run."""

    dist: Path
    work: Path
    quick: bool
    # The kind of events that replace the PMU (events.py), or None.
    stand_in: str | None
    tools: dict[str, str | None]
    used: int = field(default=0)

    def fresh(self, name: str) -> Path:
        self.used += 1
        return self.work / f"{self.used}-{name}"

    def counterpoint(
        self,
        arguments: list[str | Path],
        environment: dict[str, str] | None = None,
        status: int = 0,
    ) -> subprocess.CompletedProcess[str]:
        """Runs Counterpoint. An exit status other than `status` is an error."""
        done = self.tried(arguments, environment)
        if done.returncode != status:
            raise RuntimeError(f"{done.args}: status {done.returncode}: {done.stderr[-2000:]}")
        return done

    def tried(
        self, arguments: list[str | Path], environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs Counterpoint, whatever its exit status."""
        return subprocess.run(
            [str(self.dist / "bin/counterpoint"), *map(str, arguments)],
            capture_output=True,
            text=True,
            env={**os.environ, **(environment or {})},
            cwd=self.work,
            timeout=300,
            check=False,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dist", type=Path, required=True, help="a release: bin/, lib/, include/")
    parser.add_argument("--out", type=Path, help="where to write the page of text")
    parser.add_argument("--only", choices=["pmu", "nvidia"])
    parser.add_argument("--work", type=Path, help="where to keep profiles and traces, a new folder")
    parser.add_argument("--quick", action="store_true", help="without what is timed")
    parser.add_argument(
        "--stand-in",
        choices=["kernel", "broken"],
        help="test the checks of a PMU themselves: what the kernel counts stands in for it; the program of "
        "`broken` does not do what its source says, so each check that counts must fail",
    )
    asked = parser.parse_args()
    began = time.strftime("%Y-%m-%d UTC %H:%M:%S", time.gmtime())
    result = Result(machine.description())
    with contextlib.ExitStack() as stack:
        if asked.work:
            asked.work.mkdir(parents=True)
            work = asked.work.resolve()
        else:
            folder = tempfile.TemporaryDirectory(prefix="counterpoint-hardware-")
            work = Path(stack.enter_context(folder))
        place = Place(asked.dist.resolve(), work, asked.quick, asked.stand_in, machine.tools())
        version = place.counterpoint(["--version"]).stdout.splitlines()[0]
        for name, checks in [("pmu", pmu.check), ("nvidia", nvidia.check)]:
            if asked.only in (None, name):
                checks(place, result)
    page = result.page([began, f"hardware: {version}"])
    if asked.out:
        asked.out.write_text(page, encoding="utf-8")
    print(f"\n{page}")
    return 1 if result.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
