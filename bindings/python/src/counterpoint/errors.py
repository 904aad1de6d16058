"""The errors that this package raises. They are never raised into a model that is being profiled."""

from counterpoint._visible import visible

__all__ = ["ArgumentError", "ConflictError", "CounterpointError", "NotInstalledError", "ReportError", "UnsupportedError"]


class CounterpointError(RuntimeError):
    """Counterpoint cannot do what it was asked to do. The text says why, and what to do."""

    def __str__(self) -> str:
        return "\n".join(map(visible, super().__str__().split("\n")))


class ArgumentError(CounterpointError, TypeError, ValueError):
    """An argument has the wrong type or an invalid value."""


class NotInstalledError(CounterpointError):
    """libcounterpoint.so or the program `counterpoint` is missing."""


class UnsupportedError(CounterpointError):
    """This TVM, or this kind of virtual machine, cannot be profiled."""


class ConflictError(CounterpointError):
    """Another profile is open, and both cannot be open at the same time."""


class ReportError(CounterpointError, ValueError):
    """The text that was loaded is not a report."""


def needs(package: str, error: ImportError) -> ImportError:
    """Returns the error for an optional package that is not there."""
    return ImportError(f"this needs {package} ({error}): pip install {package}", name=package)
