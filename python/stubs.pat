# What nanobind's generator of stubs is told about names whose types it does not know: see "pattern files" in its documentation.

_core\.Error$:
    class Error(Exception):
        \doc

_core\.UsageError$:
    class UsageError(Error, ValueError):
        \doc

_core\.ArgumentTypeError$:
    class ArgumentTypeError(Error, TypeError):
        \doc

_core\.OutOfMemoryError$:
    class OutOfMemoryError(Error, MemoryError):
        \doc

_core\.(families|feature_maps|similarities|settings)$:
    \from typing import Any
    def \1() -> list[dict[str, Any]]:
        \doc
