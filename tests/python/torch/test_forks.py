"""Tests a program that forks, between ops and inside of ranges, while its ops are counted."""

import json
import os
import subprocess

import places

FAULTS = "page-faults:u"

# After a fork, the first write to a page from before the fork makes the kernel copy the page, which
# counts as a page fault of the op that writes. This is also true of PyTorch's own memory. So
# `touch` first writes to all pages of the heap. Before the call that is checked, it makes the same
# call EACH - 1 times with one page. The processes stay on one CPU, because after a move to another
# CPU the kernel can write to a thread's memory (docs/clocks.md).
EACH = 16
COMMON = f"EACH = {EACH}" + """
import ctypes, json, mmap, os, sys
import torch
import counterpoint.torch as cp
torch.set_num_threads(1)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
def fresh(pages):
    memory = mmap.mmap(-1, pages * 4096)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)
def touch(pages):
    with open("/proc/self/maps") as maps:
        (heap,) = [line.split()[0] for line in maps if line.endswith("[heap]\\n")]
    first, end = (int(at, 16) for at in heap.split("-"))
    for page in range(first, end, 4096):
        ctypes.memmove(page, page, 1)
    for n in [1] * (EACH - 1) + [pages]:
        fresh(n).bitwise_not_()
def checked(prof):
    rows = [r for r in prof.report().calls if r["Name"].string == "aten::bitwise_not_"]
    return [[r["page-faults:u"].value, r["Argument Shapes"].string] for r in rows[EACH - 1 :: EACH]]
def child(work):
    sys.stdout.flush()
    number = os.fork()
    if number == 0:
        code = 9
        try:
            torch.set_num_threads(1)
            work()
            code = 0
        finally:
            os._exit(code)
    return number
def ended(number):
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
touch(1)
"""

IN_A_PROFILE = (
    COMMON
    + """
def works():
    touch(7)
    (torch.ones(3, 3, requires_grad=True) @ torch.ones(3, 3)).sum().backward()
def has_a_profile():
    with cp.profile(["page-faults:u"], output=sys.argv[1]) as own:
        touch(33)
    print(json.dumps(checked(own)), flush=True)
def leaves():
    outer.__exit__(None, None, None)
    touch(5)
with cp.profile(["page-faults:u"], shapes=True) as outer:
    touch(1024)
    codes = [child(works)]
    touch(1025)
    with torch.profiler.record_function("around"):
        codes.append(child(works))
        touch(1026)
    codes += [child(has_a_profile), child(leaves)]
    touch(1027)
    codes = [ended(number) for number in codes]
    touch(1028)
losses = {loss.name: loss.count for loss in outer.report().losses}
print(json.dumps([codes, checked(outer), losses, os.getpid()]))
"""
)


def test_a_fork_inside_of_a_profile(torch, tmp_path):
    done = torch.run(IN_A_PROFILE, tmp_path / "child.cpt")
    codes, counts, losses, process = done.found
    assert codes == [0, 0, 0, 0], done.errors
    assert counts == [[pages, f"uint8[{4096 * pages}]"] for pages in range(1024, 1029)]
    assert losses == {}
    assert all("compiling the bridge" in line for line in done.errors.splitlines()), done.errors
    # A child need not record shapes, even if the parent's profile does.
    assert json.loads(done.output.splitlines()[0]) == [[33, ""]]
    (own,) = (tmp_path / "child.cpt/processes").iterdir()
    assert own.name.split("-")[0] != str(process)


UNDER_RUN = (
    COMMON
    + """
def works():
    touch(101)
    print(json.dumps(["child", os.getpid()]), flush=True)
def ends_the_range():
    around.__exit__(None, None, None)
    works()
touch(1024)
codes = [child(works)]
touch(1025)
around = torch.profiler.record_function("around")
around.__enter__()
codes += [child(works), child(ends_the_range)]
touch(1026)
around.__exit__(None, None, None)
with cp.profile(["page-faults:u"]) as prof:
    codes.append(child(works))
    touch(1027)
codes = [ended(number) for number in codes]
touch(1028)
print(json.dumps(["parent", os.getpid(), codes, checked(prof)]))
"""
)


def test_a_forked_child_has_its_own_part_of_a_run(torch, tmp_path):
    program, profile = str(places.DIST / "bin/counterpoint"), str(tmp_path / "run.cpt")
    script = tmp_path / "script.py"
    script.write_text(UNDER_RUN)
    done = subprocess.run(
        [program, "run", "-e", FAULTS, "-o", profile, "--", torch.python, script],
        capture_output=True,
        text=True,
        env=torch.environment(COUNTERPOINT_DIST=places.DIST),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    children = [line[1] for line in said if line[0] == "child"]
    (parent, codes, report) = next(line[1:] for line in said if line[0] == "parent")
    assert codes == [0, 0, 0, 0] and len(set(children)) == 4
    assert report == [[1027, ""]]
    shown = subprocess.run([program, "ops", profile, "--format", "json"], capture_output=True, check=True)
    document = json.loads(shown.stdout)
    of = {}
    for op in document["ops"]:
        if op["name"] == "aten::bitwise_not_":
            of.setdefault(op["process"], []).append(op["counters"][FAULTS])
    assert of.pop(parent)[EACH - 1 :: EACH] == [1, 1024, 1025, 1026, 1027, 1028]
    assert {process: counts[EACH - 1 :: EACH] for process, counts in of.items()} == {child: [101] for child in children}
    # The range belongs to the process in which it began.
    ranges = [op["process"] for op in document["ops"] if op["name"] == "around"]
    assert ranges == [parent]
    assert [loss for loss in document["losses"] if loss["severity"] != "note"] == []
    parts = {name.split("-")[0] for name in os.listdir(f"{profile}/processes")}
    assert {str(process) for process in [parent, *children]} <= parts
    assert "Traceback" not in done.stderr
