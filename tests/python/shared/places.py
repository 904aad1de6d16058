"""What the Python tests need: the package of the built `dist`, and two threads for TVM's pool."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DIST = Path(os.environ.get("COUNTERPOINT_DIST") or ROOT / "dist")

# As people have it who copied dist/ and set PYTHONPATH.
sys.path.insert(0, str(DIST / "lib/python"))
# Before TVM is imported: on small machines it would take one.
os.environ["TVM_NUM_THREADS"] = "2"
# Numbers in tables as the C locale writes them, whatever the machine's is.
os.environ["LC_ALL"] = "C"
