"""Prepares the Python tests: the package of the built `dist`, and two threads for TVM's pool."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DIST = Path(os.environ.get("COUNTERPOINT_DIST") or ROOT / "dist")

# People who copied dist/ set PYTHONPATH like this.
sys.path.insert(0, str(DIST / "lib/python"))
# TVM reads this when it is imported. On small machines, it would use one thread.
os.environ["TVM_NUM_THREADS"] = "2"
# Numbers in tables must not depend on the machine's locale.
os.environ["LC_ALL"] = "C"
