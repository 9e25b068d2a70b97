"""What a model of real numbers predicts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Densities(NamedTuple):
    """The densities of real numbers, in the units of the data: arrays of one shape, whose last axis is [targets]."""

    mean: np.ndarray
    scale: np.ndarray
    """Standard deviation of a Gaussian, scale of Student's t; 1 deviation of the data for squared error."""
    freedom: np.ndarray
    """ν of Student's t, infinite for the others."""
