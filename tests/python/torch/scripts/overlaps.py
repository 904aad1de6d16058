"""Uses overlapping profilers of PyTorch in the way that the first argument selects. PyTorch leaves some results
invalid, and PyTorch 2.12 crashes with `inside` and `crossed`. A valid result is exported to the path in the second
argument. Prints what the program sees."""

import gc
import sys
import threading

# As in quick.py, the garbage collector ignores the objects of PyTorch's modules. Objects that this
# program makes later are collected as usual.
gc.disable()
import torch
import torch._inductor.config  # noqa: F401

gc.freeze()
gc.enable()
from torch.profiler import ProfilerActivity, profile

torch.set_num_threads(1)
what, path = sys.argv[1], sys.argv[2]


def new():
    return profile(activities=[ProfilerActivity.CPU])


def on_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def names(recorded):
    return sorted(event.name for event in recorded.events())


def whole(count):
    with new() as recorded:
        for _ in range(count):
            torch.ones(3).sum()
    recorded.export_chrome_trace(path)
    print("whole", names(recorded))


if what == "nested":
    # The inner profiler ends the outer one, whose result is empty.
    with new() as outer:
        torch.ones(3)
        whole(2)
        torch.zeros(3)
    print("outer", names(outer))
elif what == "inside":
    # The inner profiler runs in another thread, and also ends the outer one.
    with new() as outer:
        on_thread(lambda: whole(3))
    print("outer", names(outer))
elif what == "crossed":
    # The profiler that stops first takes the recording of the other one.
    first, second = new(), new()
    first.__enter__()
    began, stop = threading.Event(), threading.Event()

    def other():
        second.__enter__()
        began.set()
        stop.wait()
        second.__exit__(None, None, None)

    thread = threading.Thread(target=other)
    thread.start()
    began.wait()
    torch.ones(3)
    first.__exit__(None, None, None)
    stop.set()
    thread.join()
    print("first", names(first), "second", names(second))
    whole(1)
elif what == "elsewhere":
    # Another thread stops the profiler.
    recorded = new()
    recorded.__enter__()
    torch.ones(3)
    on_thread(lambda: recorded.__exit__(None, None, None))
    print("elsewhere", names(recorded))
    whole(4)
elif what == "prepared":
    # The first profiler is not started, so it has no result. The result of the next profiler is
    # complete.
    new().prepare_trace()
    whole(2)
elif what == "one after the other":
    for _ in range(3):
        on_thread(lambda: whole(2))
elif what == "export":
    for at in (path, f"{path}.d/missing"):
        with new() as recorded:
            torch.ones(3)
        for _ in range(2):
            try:
                print(recorded.export_chrome_trace(at))
            except RuntimeError as error:
                print("RuntimeError", str(error).splitlines()[0])
