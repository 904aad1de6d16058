"""Tests what profiles leave behind (directories, memory pools and mappings), and that the first call in a profile is
recorded completely."""

import gc
import json
import os
import subprocess
import time
from pathlib import Path

import counterpoint.tvm as cp
import models
import pytest
import support


CHILDREN_THAT_EXIT = """
import os, signal, sys
import counterpoint.tvm as cp, models
mod, entry, arrays = models.MODELS["mlp"]()
args = models.tensors(arrays)
vm = models.machine(mod)

def child(read, end):
    pid = os.fork()
    if pid == 0:
        with cp.profile(vm, counters=[]) as prof:
            pass
        if read:
            prof.report()
        end()
    os.waitpid(pid, 0)

for read in (False, True):
    child(read, lambda: os._exit(0))
child(False, lambda: os.kill(os.getpid(), signal.SIGKILL))
print(len(os.listdir(os.environ["TMPDIR"])))
"""


def pools():
    return {name for name in os.listdir("/dev/shm") if name.startswith("counterpoint-")}


def test_children_that_end_at_once_leave_nothing(tmp_path):
    before = pools()
    told = support.python(CHILDREN_THAT_EXIT, TMPDIR=str(tmp_path))
    assert int(told) > 0, "they could not remove theirs"
    assert list(tmp_path.iterdir()) == []
    # Other tests may have made pools in the meantime, but a directory without a pool would be a
    # leftover.
    assert not {name for name in pools() - before if not Path(f"/dev/shm/{name}/pool").exists()}


def test_directories_of_others_are_left_alone(tmp_path, monkeypatch):
    from counterpoint import _places

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = Path(_places.make())
    machine = mine.name.split("-")[1]
    gone = subprocess_that_ended()
    kept = [
        f"counterpoint-{machine}-{os.getpid()}-1-x y",
        f"counterpoint-00000000-{gone}-1-abc",
        f"counterpoint-{machine}-{os.getppid()}-{_places._start_of(os.getppid())}-abc",
        "counterpoint-abc",
    ]
    removed = [f"counterpoint-{machine}-{gone}-1-abc", f"counterpoint-{machine}-{os.getpid()}-1-abc"]
    for name in [*kept[1:], *removed]:
        (tmp_path / name).mkdir()
    (tmp_path / kept[0]).symlink_to("/etc")
    _places.sweep()
    assert {path.name for path in tmp_path.iterdir()} == {mine.name, *kept}
    mine.rmdir()


def test_a_leftover_that_names_a_directory_of_others(tmp_path, monkeypatch):
    """Anybody may have written the manifest of a leftover profile, so the clean-up must not delete
    the pool that the manifest names."""
    from counterpoint import _places

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    precious = tmp_path / "counterpoint-thesis"
    precious.mkdir()
    (precious / "pool").write_text("precious")
    profile = tmp_path / "tmp" / f"counterpoint-{_places._machine()}-{subprocess_that_ended()}-1-abc"
    (profile / "profile.cpt").mkdir(parents=True)
    manifest = {"schema": "counterpoint.manifest/1", "id": "0" * 32, "pool": str(precious / "pool")}
    (profile / "profile.cpt" / "manifest.json").write_text(json.dumps(manifest))
    _places.sweep()
    assert not profile.exists()
    assert (precious / "pool").read_text() == "precious"


def subprocess_that_ended():
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def mappings():
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)


def test_sessions_leave_no_more_mappings(mlp):
    vm, entry, args = mlp

    def once(counters):
        with cp.profile(vm, counters=counters) as prof:
            vm[entry](*args)
        return support.counted(prof.report(all=True))

    expected, _ = support.independent(vm, entry, args)
    once([]), once(["page-faults"])
    before = mappings()
    for i in range(12):
        assert once([["page-faults"], [], ["page-faults", "task-clock"]][i % 3]) == expected
    # The program's own heap may have grown, but not by one mapping for each profile.
    assert mappings() - before < 6


def test_a_profile_that_is_read_late_or_never_is_whole_and_leaves_nothing(mlp, tmp_path):
    vm, entry, args = mlp
    expected, _ = support.independent(vm, entry, args)
    before = pools()
    profiles = []
    for _ in range(7):
        with cp.profile(vm, counters=[]) as prof:
            vm[entry](*args)
        profiles.append(prof)
    for prof in profiles[:5]:
        assert support.counted(prof.report(all=True)) == expected
    assert "matmul" in support.run([support.PROGRAM, "report", profiles[5].path])
    del prof, profiles
    gc.collect()
    # Other tests may have made pools in the meantime, which disappear when those tests end.
    deadline = time.monotonic() + 120
    while not pools() <= before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert pools() <= before


def test_the_first_call_is_as_whole_as_the_others():
    """Opening a profile creates the calling thread's state and counters, and stores the names of
    ops, so the first call need not do this."""
    vm = models.machine(models.touching(5))
    argument = support.fresh(10 * 4096)
    vm["main"](argument)
    with cp.profile(vm, counters=["page-faults:u"]):
        vm["main"](argument)
    with cp.profile(vm, counters=["page-faults:u"]) as prof:
        (part,) = (Path(prof._session.path) / "processes").iterdir()
        names = part / "meta.cps"
        # The file already has the names for the op, its arguments and its regions.
        assert names.read_bytes().count(b"touch") == 3
        vm["main"](argument)
        # The pool thread that works for the op's parallel region adds no names.
        assert names.read_bytes().count(b"touch") == 3
    assert not prof.report().losses


def test_a_second_profile_says_that_its_output_is_not_made(mlp, tmp_path):
    vm, entry, args = mlp
    second = tmp_path / "second.cpt"
    with cp.profile(vm, counters=[], output=str(tmp_path / "first.cpt")):
        with pytest.warns(cp.CounterpointWarning, match="second.cpt.* is not made: .*first.cpt"):
            with cp.profile(vm, counters=[], output=str(second)):
                vm[entry](*args)
    assert not second.exists()
