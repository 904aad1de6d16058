"""Tests profiler plugins in profiles of this process."""

import csv
import io
import os
import subprocess
from pathlib import Path

import counterpoint.tvm as cp
import models
import pytest
import support

SOURCE = support.HERE.parents[1] / "programs" / "plugins" / "timed.c"
INCLUDE = support.HERE.parents[2] / "include"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    name = f"kernel_{os.getpid():x}"
    file = tmp_path_factory.mktemp("plugin") / "timed.so"
    command = ["cc", "-O1", "-fPIC", "-shared", "-std=gnu11", f'-DNAME="{name}"', f"-I{INCLUDE}"]
    subprocess.run([*command, str(SOURCE), "-o", str(file)], check=True)
    return file, name


def calls(profile):
    command = [support.PROGRAM, "report", str(profile), "--format", "csv"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {row["op"]: int(row["calls"]) for row in csv.DictReader(io.StringIO(text)) if row.get("op")}


def without_bookkeeping(counted):
    return {op: count for op, count in counted.items() if not op[0].startswith("vm.builtin.")}


def test_a_plugin_records_while_a_profile_is_open(plugin, tmp_path):
    file, name = plugin
    mod, entry, arrays = models.MODELS["mlp"]()
    args = models.tensors(arrays)
    vm = models.machine(mod)
    for number in range(2):
        output = tmp_path / f"{number}.cpt"
        with cp.profile(vm, counters=[], output=output, plugins=[file]) as prof:
            vm[entry](*args)
        found = calls(output)
        assert found[name] == 1 and found["launch it"] == 1, found
        ops = without_bookkeeping(support.counted(prof.report()))
        assert ops == without_bookkeeping(support.independent(vm, entry, args)[0])
    with cp.profile(vm, counters=[], output=tmp_path / "none.cpt") as prof:
        vm[entry](*args)
    assert name not in calls(tmp_path / "none.cpt")


def test_a_plugin_that_does_not_exist_is_an_error(tmp_path):
    vm = models.machine(models.MODELS["mlp"]()[0])
    missing = Path(tmp_path, "missing.so")
    with pytest.raises(cp.CounterpointError, match="missing.so"):
        with cp.profile(vm, counters=[], plugins=missing):
            pass
