import os

import places  # noqa: F401  (sets paths and variables before anything is imported)


def pytest_runtest_logreport(report):
    """Writes each skipped test where `cargo xtask test` looks."""
    log = os.environ.get("COUNTERPOINT_SKIP_LOG")
    if log and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        reason = str(reason).removeprefix("Skipped: ").replace("\n", " ")
        with open(log, "a") as file:
            file.write(f"{report.nodeid}: {reason}\n")
