"""The errors that this package raises. They are never raised inside a model that is being profiled."""

from counterpoint._visible import visible

__all__ = ["ArgumentError", "ConflictError", "CounterpointError", "NotInstalledError", "ReportError", "UnsupportedError"]


class CounterpointError(RuntimeError):
    """Counterpoint cannot do what the caller asked for. The text says why, and what to do about it."""

    def __str__(self) -> str:
        return "\n".join(map(visible, super().__str__().split("\n")))


class ArgumentError(CounterpointError, TypeError, ValueError):
    """An argument has the wrong type or an invalid value."""


class NotInstalledError(CounterpointError):
    """libcounterpoint.so or the program `counterpoint` is missing, or has another version."""


class UnsupportedError(CounterpointError):
    """This version of TVM or PyTorch, or this kind of virtual machine, cannot be profiled."""


class ConflictError(CounterpointError):
    """Another profile or session is open, and both cannot be open at the same time."""


class ReportError(CounterpointError, ValueError):
    """A text is not a report, a path is not a profile, or this package cannot show what it has read."""


def needs(package: str, error: ImportError) -> ImportError:
    """Returns the error for an optional package that is not installed."""
    return ImportError(f"this needs {package} ({error}): pip install {package}", name=package)
