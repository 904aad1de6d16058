"""Stands in for a C++ compiler: calls the compiler `real` in its own folder, but compiles the same text with the same
options only once. Keeps the object files in the folder `kept`."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

folder = Path(sys.argv[0]).parent
words = [str((folder / "real").resolve()), *sys.argv[1:]]
if "-c" not in words or "-o" not in words:
    os.execv(words[0], words)
at = words.index("-o") + 1
look = [*words[:at], "-", *words[at + 1 :], "-E", "-P"]
text = subprocess.run(look, capture_output=True)
if text.returncode != 0:
    os.execv(words[0], words)
# The preprocessed text contains the effects of the other options.
options = [word for word in words if word.startswith(("-O", "-f", "-g", "-m", "-s"))]
compiler = (words[0], os.stat(words[0]).st_mtime_ns)
key = hashlib.sha256(repr((compiler, options)).encode() + text.stdout).hexdigest()
kept = folder / "kept" / f"{key}.o"
if not kept.exists():
    code = subprocess.run(words).returncode
    if code != 0:
        sys.exit(code)
    made = kept.with_suffix(f".{os.getpid()}")
    shutil.copyfile(words[at], made)
    made.rename(kept)
shutil.copyfile(kept, words[at])
