"""Describes this machine, and opens its counters without Counterpoint's code."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import struct
import subprocess

SYS_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}


def said(command: list[str], timeout: float = 20) -> str:
    """Returns what a program prints, or an empty text if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def first_line(path: str, begin: str) -> str:
    """Returns the value after the colon in the first line that begins with `begin`."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith(begin):
                return line.split(":", 1)[1].strip()
    return ""


# For each counter: the type and the number (config) that perf_event_open takes.
GENERIC = {
    "cycles": (0, 0),
    "instructions": (0, 1),
    "cache-references": (0, 2),
    "cache-misses": (0, 3),
    "branches": (0, 4),
    "branch-misses": (0, 5),
    "page-faults": (1, 2),
    "minor-faults": (1, 5),
    "L1-dcache-loads": (3, 0x00000),
    "L1-dcache-load-misses": (3, 0x10000),
    "L1-icache-load-misses": (3, 0x10001),
    "LLC-loads": (3, 0x00002),
    "LLC-load-misses": (3, 0x10002),
    "dTLB-loads": (3, 0x00003),
    "dTLB-load-misses": (3, 0x10003),
    "iTLB-load-misses": (3, 0x10004),
    "branch-loads": (3, 0x00005),
    "branch-load-misses": (3, 0x10005),
}
# Bits of the word after read_format in perf_event_attr.
DISABLED, INHERIT, NOT_KERNEL, NOT_HYPERVISOR, ON_EXEC = 1 << 0, 1 << 1, 1 << 5, 1 << 6, 1 << 12


def opened(name: str, group: int = -1, flags: int = 0) -> tuple[int, str]:
    """Returns a descriptor and an empty text, or -1 and why the counter cannot be opened. Counterpoint's counts are
    compared with those of this descriptor, so this function uses no code of Counterpoint."""
    number = SYS_PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        return -1, f"not known how on {platform.machine()}"
    kind, config = GENERIC[name]
    # The fields of perf_event_attr up to version 5 (112 bytes). With this read_format, read(2) also
    # returns the times enabled and running.
    bits = NOT_KERNEL | NOT_HYPERVISOR | flags
    attributes = struct.pack("IIQQQQQ", kind, 112, config, 0, 0, 3, bits).ljust(112, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, attributes, 0, -1, group, 0)
    if descriptor < 0:
        code = ctypes.get_errno()
        return -1, f"{errno.errorcode.get(code, code)}: {os.strerror(code)}"
    os.set_inheritable(descriptor, False)
    return descriptor, ""


def why_not(names: list[str]) -> str:
    """Returns why the counters cannot count as one group, or an empty text if they can."""
    descriptors: list[int] = []
    try:
        for name in names:
            descriptor, why = opened(name, descriptors[0] if descriptors else -1)
            if why:
                return f"{name}: {why}"
            descriptors.append(descriptor)
        sum(range(100_000))
        _, _, running = struct.unpack("QQQ", os.read(descriptors[0], 24))
        return "" if running else "the group never runs"
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def counted(name: str, command: list[str]) -> int:
    """Returns the count of this counter in a whole program, in user mode."""
    descriptor, why = opened(name, flags=DISABLED | INHERIT | ON_EXEC)
    if why:
        raise RuntimeError(f"{name}: {why}")
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        return struct.unpack("QQQ", os.read(descriptor, 24))[0]
    finally:
        os.close(descriptor)


def reads_without_kernel() -> str:
    """Returns why counters cannot be read without system calls, or an empty text if they can."""
    for path in ("/sys/bus/event_source/devices/cpu/rdpmc", "/proc/sys/kernel/perf_user_access"):
        try:
            with open(path, encoding="utf-8") as file:
                value = file.read().strip()
        except OSError:
            continue
        return "" if value != "0" else f"{path} is 0"
    return "the kernel has neither rdpmc nor perf_user_access"


def nvidia() -> list[str]:
    """Returns NVIDIA's devices: name, driver, memory."""
    rows = said(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    return [row for row in rows.splitlines() if row]


def description() -> list[str]:
    cpu = first_line("/proc/cpuinfo", "model name") or platform.processor() or "unknown processor"
    virtual = "virtualised, " if "hypervisor" in open("/proc/cpuinfo", encoding="utf-8").read() else ""
    lines = [
        f"machine: {cpu}, {os.cpu_count()} processors, {virtual}kernel {platform.release()}, "
        f"glibc {platform.libc_ver()[1]}"
    ]
    lines += [f"device: {row}" for row in nvidia()]
    return lines


def tools() -> dict[str, str | None]:
    """Returns the paths of the programs that the checks use. A missing program has None."""
    return {name: shutil.which(name) for name in ("perf", "nvcc", "gcc", "cc", "g++", "nvidia-smi")}
