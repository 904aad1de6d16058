"""Prepares the Python tests: they import the package from the built `dist/`, and TVM's pool has two threads."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DIST = Path(os.environ.get("COUNTERPOINT_DIST") or ROOT / "dist")

# People who copied dist/ set PYTHONPATH like this.
sys.path.insert(0, str(DIST / "lib/python"))
# TVM reads this variable when it is imported. Without it, TVM uses one thread on small machines.
os.environ["TVM_NUM_THREADS"] = "2"
# Numbers in tables must not depend on the machine's locale.
os.environ["LC_ALL"] = "C"
