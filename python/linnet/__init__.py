"""Linnet: transformers with linear-time attention.

Load, train and run models, and compute attention on NumPy arrays. ``docs/python.md`` is the guide.
"""

from ._attention import Attention, Gradients, State, attention, attention_gradients, attention_step
from ._configuration import configuration, shipped_configurations
from ._core import (
    ArgumentTypeError,
    Context,
    Error,
    FeatureMap,
    Mask,
    OutOfMemoryError,
    Similarity,
    UsageError,
    available_processors,
    families,
    feature_map,
    feature_maps,
    instruction_set,
    settings,
    similarities,
    similarity,
)
from ._core import version as __version__
from ._dataset import Dataset
from ._densities import Densities
from ._model import Filling, Model, load, random_model
from ._number_session import NumberSession
from ._series import Anomalies, Anomaly, Forecast, SeriesScores, forecast, score
from ._session import Session
from ._tokenizer import TextStream, Tokenizer
from ._training import Trainer, Training, evaluate, train

__all__ = [
    "Anomalies",
    "Anomaly",
    "ArgumentTypeError",
    "Attention",
    "Context",
    "Dataset",
    "Densities",
    "Error",
    "FeatureMap",
    "Filling",
    "Forecast",
    "Gradients",
    "Mask",
    "Model",
    "NumberSession",
    "OutOfMemoryError",
    "SeriesScores",
    "Session",
    "Similarity",
    "State",
    "TextStream",
    "Tokenizer",
    "Trainer",
    "Training",
    "UsageError",
    "__version__",
    "attention",
    "attention_gradients",
    "attention_step",
    "available_processors",
    "configuration",
    "evaluate",
    "families",
    "feature_map",
    "feature_maps",
    "forecast",
    "instruction_set",
    "load",
    "random_model",
    "score",
    "settings",
    "shipped_configurations",
    "similarities",
    "similarity",
    "train",
]
