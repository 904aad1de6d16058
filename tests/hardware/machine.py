"""What this machine is and has."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import struct
import subprocess

SYS_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
HARDWARE, CYCLES, INSTRUCTIONS = 0, 0, 1


def said(command: list[str], timeout: float = 20) -> str:
    """What a program prints, or nothing if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def first_line(path: str, begin: str) -> str:
    """The value of a line of a file of /proc."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith(begin):
                return line.split(":", 1)[1].strip()
    return ""


def open_hardware(config: int) -> str:
    """Opens a hardware counter of this thread in user mode. Returns why not, or nothing."""
    number = SYS_PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        return f"not known how on {platform.machine()}"
    # perf_event_attr up to version 5 (112 bytes): type, size, config; exclude_kernel is bit 5.
    attributes = struct.pack("IIQQQQQ", HARDWARE, 112, config, 0, 0, 0, 1 << 5 | 1 << 6).ljust(112, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    opened = libc.syscall(number, attributes, 0, -1, -1, 0)
    if opened < 0:
        code = ctypes.get_errno()
        return f"{errno.errorcode.get(code, code)}: {os.strerror(code)}"
    os.close(opened)
    return ""


def nvidia() -> list[str]:
    """NVIDIA's devices: name, driver, memory."""
    rows = said(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    return [row for row in rows.splitlines() if row]


def description() -> list[str]:
    """Lines that say what the machine is."""
    cpu = first_line("/proc/cpuinfo", "model name") or platform.processor() or "unknown processor"
    virtual = "virtualised, " if "hypervisor" in open("/proc/cpuinfo", encoding="utf-8").read() else ""
    lines = [
        f"machine: {cpu}, {os.cpu_count()} processors, {virtual}kernel {platform.release()}, "
        f"glibc {platform.libc_ver()[1]}"
    ]
    lines += [f"device: {row}" for row in nvidia()]
    return lines


def tools() -> dict[str, str | None]:
    """Where the judges are."""
    return {name: shutil.which(name) for name in ("perf", "nvcc", "gcc", "cc", "g++", "nvidia-smi")}
