"""The entry point that `import torch` runs when the package is installed (group `torch.backends`).

Whatever it raised would make `import torch` fail, so it raises nothing. If nothing is asked of
Counterpoint, it reads a few environment variables and imports nothing.
"""

from __future__ import annotations

import os

OFF = ("0", "off", "false", "no")


def autoload() -> None:
    """Connects the parts of the bridge that this process needs."""
    try:
        parts = wanted()
        if parts:
            from counterpoint.torch import _load

            for part in parts:
                if _load.begin(part) and part == "ops":
                    from counterpoint.torch import _ops

                    _ops.follow_run()
    except BaseException as error:  # Also SystemExit and KeyboardInterrupt; see above.
        complain(f"PyTorch is not connected: {type(error).__name__}: {error}")


def wanted() -> list[str]:
    """Returns the parts that the environment asks for."""
    if os.environ.get("COUNTERPOINT_TORCH", "").strip().lower() in OFF:
        return []
    # PyTorch's own switch. It matters where PyTorch is not what called us.
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return []
    parts = []
    # KINETO_DISABLE_CUPTI asks something of PyTorch's profiler that only the shim can do.
    if os.environ.get("KINETO_PLUGIN_LIB_DIR_PATH") or os.environ.get("KINETO_DISABLE_CUPTI"):
        parts.append("plugins")
    # `counterpoint run` started this process.
    if os.environ.get("COUNTERPOINT_RUN_FILE"):
        parts.append("ops")
    return parts


def complain(line: str) -> None:
    """Writes a line to stderr, if that is possible."""
    try:
        os.write(2, f"counterpoint: {line}\n".encode(errors="backslashreplace"))
    except BaseException:
        pass
