"""What this package raises. Never raised into a model that is being profiled."""

__all__ = ["ArgumentError", "ConflictError", "CounterpointError", "NotInstalledError", "ReportError", "UnsupportedError"]


class CounterpointError(RuntimeError):
    """Something that was asked of Counterpoint cannot be done; the text says why and what to do."""


class ArgumentError(CounterpointError, TypeError, ValueError):
    """An argument is of the wrong type, or has a value that means nothing here."""


class NotInstalledError(CounterpointError):
    """libcounterpoint.so or the program `counterpoint` is not there."""


class UnsupportedError(CounterpointError):
    """This TVM, or this kind of virtual machine, cannot be profiled."""


class ConflictError(CounterpointError):
    """Another profile is open, and both cannot be."""


class ReportError(CounterpointError, ValueError):
    """A text that is no report."""
