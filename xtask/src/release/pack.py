"""Packs folders and files into a .tar.zst, or unpacks one.

    pack.py TO.tar.zst FROM=NAME …      a folder FROM with everything below it, or a file
    pack.py --unpack FROM.tar.zst FOLDER

The same content gives the same archive: the time of each file is SOURCE_DATE_EPOCH (or 1980, if it is not
set), the owner is root, names are sorted, and of a file's mode only the right to execute is kept.
"""

import io
import os
import sys
import tarfile
from pathlib import Path

import zstandard

WHEN = int(os.environ.get("SOURCE_DATE_EPOCH") or 315532800)


def pack(to, pairs):
    found = {}
    for pair in pairs:
        source, _, name = pair.rpartition("=")
        source = Path(source)
        if source.is_dir():
            for path in source.rglob("*"):
                if path.is_file():
                    found[f"{name}/{path.relative_to(source).as_posix()}"] = path
        else:
            found[name] = source
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, path in sorted(found.items()):
            info = tarfile.TarInfo(name)
            info.size = path.stat().st_size
            info.mtime = WHEN
            info.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            info.uname = info.gname = "root"
            with path.open("rb") as file:
                archive.addfile(info, file)
    Path(to).write_bytes(zstandard.ZstdCompressor(level=19).compress(whole.getvalue()))


def unpack(source, folder):
    with open(source, "rb") as file:
        plain = zstandard.ZstdDecompressor().stream_reader(file).read()
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        archive.extractall(folder)


if sys.argv[1] == "--unpack":
    unpack(*sys.argv[2:])
else:
    pack(sys.argv[1], sys.argv[2:])
