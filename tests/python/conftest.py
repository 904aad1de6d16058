import os
import sys
from pathlib import Path

# pytest has put this folder into sys.path. The folders `torch` and `tvm` would then be found as
# packages, for example by TVM, which checks whether PyTorch is installed.
HERE = Path(__file__).resolve().parent
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != HERE]
sys.path.insert(0, str(HERE / "shared"))

import places  # noqa: E402, F401  (sets paths and variables before anything is imported)


def pytest_runtest_logreport(report):
    """Writes each skipped test into the file that `cargo xtask test` reads."""
    log = os.environ.get("COUNTERPOINT_SKIP_LOG")
    if log and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        reason = str(reason).removeprefix("Skipped: ").replace("\n", " ")
        with open(log, "a") as file:
            file.write(f"{report.nodeid}: {reason}\n")
