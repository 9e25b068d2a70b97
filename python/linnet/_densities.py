"""What a model of real numbers predicts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Densities(NamedTuple):
    """The densities of real numbers: arrays of one shape, whose last axis is [targets]. They are in the units of the data; in a model
    whose columns are sequences of their own (data.columns_apart, as in the configuration series) in (number - mean) / deviation of
    the column in training. `linnet.forecast` and `linnet.score` take and give the units of the data in any model.

    Attributes
    ----------
    mean : float32 array
    scale : float32 array
        Standard deviation of a Gaussian, scale of Student's t. A model of squared errors predicts the mean alone; scale is then one
        deviation of the training data, by which its bits are counted.
    freedom : float32 array
        Degrees of freedom of Student's t; infinite for the others.
    """

    mean: np.ndarray
    scale: np.ndarray
    freedom: np.ndarray
