"""Reads Chrome's traces and Counterpoint's reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from run import Place

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
# The clocks of device and host agree only to within a few microseconds.
CLOCK_US = 5.0


def slices(file: Path) -> list[dict]:
    with open(file, encoding="utf-8") as opened:
        events = json.load(opened)["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def totals(events: list[dict]) -> dict[str, tuple[int, float]]:
    """The number and the total microseconds of the devices' activities, by name."""
    found: dict[str, list[float]] = {}
    for event in events:
        if event.get("cat") in WORK:
            found.setdefault(event["name"], []).append(event["dur"])
    return {name: (len(all_), round(sum(all_), 3)) for name, all_ in found.items()}


def flows(file: Path) -> dict[object, tuple[int, list[dict]]]:
    """Returns, for each arrow from a launch to a device's activities, how often it begins, and the events at its
    ends."""
    with open(file, encoding="utf-8") as opened:
        events = json.load(opened)["traceEvents"]
    found: dict[object, tuple[int, list[dict]]] = {}
    for event in events:
        if event.get("cat") == "ac2g":
            starts, ends = found.get(event["id"], (0, []))
            if event["ph"] == "s":
                starts += 1
            else:
                ends = [*ends, event]
            found[event["id"]] = (starts, ends)
    return found


def averages(file: Path, names: set[str]) -> dict[str, tuple[int, float]]:
    """Returns the same as `totals`, from `key_averages`. Rows of the host are left out,
    and so are ranges: the rows that are not in `names`."""
    with open(file, encoding="utf-8") as opened:
        rows = json.load(opened)
    return {
        row["name"]: (row["count"], row["self_device_us"])
        for row in rows
        if row["device"] == "CUDA" and row["name"] in names
    }


def rows(place: Place, profile: Path, *options: str) -> list[dict]:
    command = ["report", profile, "--top", "0", "--format", "json", *options]
    return json.loads(place.counterpoint(command).stdout)["rows"]


def work_of(place: Place, profile: Path) -> dict[str, tuple[int, float]]:
    """Returns the same as `totals`, from the single calls of a profile."""
    trace = place.fresh("work.json")
    place.counterpoint(["trace", "export", profile, "-o", trace])
    return totals(slices(trace))
