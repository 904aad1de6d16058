"""Prepares the Python tests: the package of the built `dist`, and two threads for TVM's pool."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DIST = Path(os.environ.get("COUNTERPOINT_DIST") or ROOT / "dist")

# This is what people do who copied dist/ and set PYTHONPATH.
sys.path.insert(0, str(DIST / "lib/python"))
# This must be set before TVM is imported. On small machines, TVM would use one thread.
os.environ["TVM_NUM_THREADS"] = "2"
# Tables have numbers as the C locale writes them, whatever the machine's locale is.
os.environ["LC_ALL"] = "C"
