"""The entry point that `import torch` runs (group `torch.backends`).

An entry point that fails makes `import torch` fail. An entry point in the package `counterpoint` would
fail if the program has another module of this name. So the entry point is in a separate module whose
name nobody else uses.
"""

import os


def autoload() -> None:
    """Connects Counterpoint to PyTorch, if the environment asks for it. Raises only KeyboardInterrupt."""
    try:
        from counterpoint.torch import _entry

        _entry.autoload()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        try:
            if os.environ.get("KINETO_PLUGIN_LIB_DIR_PATH") or os.environ.get("COUNTERPOINT_RUN_FILE"):
                line = f"counterpoint: PyTorch is not connected: {type(error).__name__}: {error}\n"
                os.write(2, line.encode(errors="backslashreplace"))
        except BaseException:
            pass
