# `counterpoint run` puts the folder of this file in front of PYTHONPATH, so that a Python program
# executes this file when it starts (unless Python was started with -I, -E or -S). The code waits until the
# program imports TVM's virtual machine or PyTorch, and then makes the package `counterpoint` record it. This
# code prints nothing, must not fail, and must be valid in every version of Python.


def _begin():
    import os
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    # The program sees the sys.path that it would have without Counterpoint. PYTHONPATH stays as it
    # is, for child processes.
    sys.path[:] = [
        p for p in sys.path if not (isinstance(p, str) and p and os.path.abspath(p) == here)
    ]
    if os.environ.get("COUNTERPOINT_RUN_FILE") and sys.version_info >= (3, 10):
        sys.meta_path.insert(0, _finder(os.path.dirname(here)))


def _finder(package):
    import sys

    class Finder(object):
        """Notices an import of TVM's virtual machine or PyTorch, and lets the other finders find the
        module."""

        waiting = {"tvm.runtime.vm": attach, "torch": attach_torch}

        def find_spec(self, name, path=None, target=None):
            if name not in self.waiting:
                return None
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None) if finder is not self else None
                spec = find(name, path, target) if find is not None else None
                if spec is not None:
                    self.wait(name, spec)
                    return spec
            return None

        def wait(self, name, spec):
            execute = getattr(spec.loader, "exec_module", None)
            if execute is None:
                return

            def exec_module(module):
                # This function runs once; a reload uses the original loader. The finder is removed
                # only here, because a program may look for a module (`importlib.util.find_spec`) before
                # importing it.
                try:
                    del spec.loader.exec_module
                except Exception:
                    pass
                then = self.waiting.pop(name, None)
                if not self.waiting and self in sys.meta_path:
                    sys.meta_path.remove(self)
                execute(module)
                try:
                    if then is not None:
                        timed(then, package)
                except Exception:
                    pass

            try:
                spec.loader.exec_module = exec_module
            except Exception:
                pass

    return Finder()


def timed(then, package):
    """Connects the package with `then`, and reports the CPU time that this took as a cost of recording."""
    import time

    begun = time.thread_time_ns()
    then(package)
    from counterpoint._agent import agent

    agent()[0].spent(time.thread_time_ns() - begun)


def attach(package):
    """Makes the package record TVM. `package` is the folder of `counterpoint`."""
    load(package)
    from counterpoint.tvm import _machines

    _machines.attach_all = True


def attach_torch(package):
    """Makes the package record PyTorch, unless the installed package has already done this."""
    load(package)
    from counterpoint.torch import _entry

    _entry.autoload()


def load(package):
    """Imports the package that belongs to the preloaded library."""
    import importlib.util
    import os
    import sys

    if "counterpoint" not in sys.modules:
        # Loading the package from its path does not change sys.path.
        spec = importlib.util.spec_from_file_location(
            "counterpoint", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules["counterpoint"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules["counterpoint"]
            raise


def _next():
    """Imports the `sitecustomize` that Python would have found without this file."""
    import sys

    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    finally:
        # The import system requires that `sys.modules` still has an entry with this name.
        if "sitecustomize" not in sys.modules and ours is not None:
            sys.modules["sitecustomize"] = ours


try:
    _begin()
except Exception:
    pass
# Python handles an error of the next sitecustomize as it would without this file.
_next()
