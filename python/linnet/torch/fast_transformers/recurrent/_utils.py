"""The states of recurrent modules."""

import warnings

import torch

from ..._functions import split_state
from ..._operators import is_log_scaled


def check_state(state=None, memory=None):
    """The state, by its name or by `memory`, its deprecated one."""
    if memory is not None:
        warnings.warn(
            "[recurrent] expected the argument state, got memory, its deprecated name", DeprecationWarning, stacklevel=3
        )
    return memory if state is None else state


class State(list):
    """The elements of a state with what they are parts of, as long as nobody puts others into their places."""

    def __init__(self, elements):
        super().__init__(elements)
        self._made = tuple(self)

    def is_as_made(self):
        return len(self) == len(self._made) and all(found is made for found, made in zip(self, self._made))


class LinearState(State):
    """[S, z], S [N, H, F, M] and z [N, H, F], and with the maps favor... the log-scales [N, H, 2]: views of the one tensor
    `numbers`."""

    def __init__(self, numbers, heads, value_dim, feature_map="elu"):
        elements = split_state(numbers, heads, value_dim, feature_map=feature_map)
        if is_log_scaled(feature_map):
            elements = (*elements, numbers[:, -2 * heads :].unflatten(1, (heads, 2)))
        super().__init__(elements)
        self.numbers = numbers


def numbers_of(state):
    """The one tensor [N, floats] of a linear state, or of a list like it."""
    if isinstance(state, LinearState) and state.is_as_made():
        return state.numbers
    return torch.cat([part.flatten(1) for part in state], 1)
