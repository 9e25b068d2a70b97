"""The state of a recurrent module."""

import warnings


def check_state(state=None, memory=None):
    """The state, by its name or by `memory`, its deprecated one."""
    if memory is not None:
        warnings.warn(
            "[recurrent] expected the argument state, got memory, its deprecated name", DeprecationWarning, stacklevel=3
        )
    return memory if state is None else state
