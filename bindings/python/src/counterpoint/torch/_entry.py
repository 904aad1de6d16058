"""Decides at `import torch` which parts of the bridge between PyTorch and Counterpoint to connect.
If the package is installed, PyTorch runs the entry point in `_counterpoint_torch.py`, which calls
`autoload`.

An exception would make `import torch` fail. So `autoload` raises only KeyboardInterrupt, because
Ctrl-C is meant for the program. If the environment variables ask for no part, importing this module
must be cheap.
"""

from __future__ import annotations

import os
import sys

from counterpoint.torch._complaints import complain, told

OFF = ("0", "off", "false", "no")


def autoload() -> None:
    """Connects the parts of the bridge that this process needs."""
    try:
        if is_off():
            return
        if os.environ.get("COUNTERPOINT_RUN_FILE"):
            # The recordings of PyTorch's own profiler become a part of the profile.
            from counterpoint.torch import _log

            _log.install()
        parts = wanted()
        if parts:
            from counterpoint.torch import _load

            for part in parts:
                if _load.begin(part) and part == "ops":
                    from counterpoint.torch import _ops

                    _ops.follow_run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Also SystemExit; see above.
        complain(f"PyTorch is not connected: {told(error)}")


def is_off() -> bool:
    """Returns whether the user has switched the bridge off. PyTorch's own switch,
    `TORCH_DEVICE_BACKEND_AUTOLOAD`, is checked here, too, because not only PyTorch calls
    `autoload`."""
    ours = os.environ.get("COUNTERPOINT_TORCH", "").strip().lower() in OFF
    return ours or os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0"


def wanted() -> list[str]:
    """Returns the parts that the environment asks to connect now."""
    if is_off():
        return []
    parts = []
    if os.environ.get("KINETO_PLUGIN_LIB_DIR_PATH") or disables_cupti():
        parts.append("plugins")
    if os.environ.get("COUNTERPOINT_RUN_FILE"):
        parts.append("ops")
    return parts


def disables_cupti() -> bool:
    """Returns whether the user forbids CUPTI and this PyTorch was built for CUDA. Then the shim is
    needed, because without it, PyTorch's profiler would use CUPTI nevertheless."""
    if os.environ.get("KINETO_DISABLE_CUPTI", "") in ("", "0"):
        return False
    torch = sys.modules.get("torch")
    return torch is not None and torch.version.cuda is not None
