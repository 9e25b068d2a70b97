"""Configurations: dictionaries with the keys of TOML files and config.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from ._types import Config, Settings

_SHIPPED = Path(__file__).parent / "configs"


def shipped_configurations() -> list[str]:
    """The names of the configurations that come with the package."""
    return sorted(path.stem for path in _SHIPPED.glob("*.toml"))


def _read(path: Path) -> dict[str, Any]:
    import tomllib  # takes its time

    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _core.UsageError(f"[config] expected TOML in {path}, got {error}") from error
    except OSError as error:
        raise _core.Error(f"[config] expected to read {path}, got {error.strerror}") from error


def _find(name: str) -> Path:
    path = Path(name)
    if path.is_file():
        return path
    shipped = shipped_configurations()
    if name in shipped:
        return _SHIPPED / f"{name}.toml"
    if path.suffix == ".toml" or len(path.parts) != 1:
        raise _core.UsageError(f"[config] expected a TOML file, got {name}, which does not exist")
    import difflib

    near = difflib.get_close_matches(name, shipped, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise _core.UsageError(
        f"[config] expected a TOML file or one of the shipped configurations ({', '.join(shipped)}), got {name}{hint}"
    )


def _put(tables: dict, key: str, value) -> None:
    """Puts `value` under a dotted key."""
    *groups, last = key.split(".")
    for group in groups:
        tables = tables.setdefault(group, {})
        if not isinstance(tables, dict):
            raise _core.UsageError(f"[config] expected a table {group}, got a value in {key}")
    tables[last] = value


def _entries(tables: Mapping, prefix: str = ""):
    """The values of nested dictionaries with their dotted keys."""
    for key, value in tables.items():
        if not isinstance(key, str):
            raise _core.ArgumentTypeError(f"[config] expected keys as text, got {type(key).__name__}")
        if isinstance(value, Mapping):
            yield from _entries(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _merge(tables: dict, more: Mapping) -> None:
    for key, value in _entries(more):
        _put(tables, key, value)


def _check_settings(settings) -> None:
    if settings is not None and not isinstance(settings, Mapping):
        raise _core.ArgumentTypeError(f"[config] expected settings as a dictionary, got {type(settings).__name__}")


def _plain(value):
    """A number of NumPy as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise _core.ArgumentTypeError(f"[config] expected numbers, text and booleans, got {type(value).__name__}")


def assignments_of(settings: Settings | None) -> list[str]:
    """Settings as texts ``key=value``, which the C++ module reads beside the configuration of a model."""
    _check_settings(settings)
    assignments = []
    for key, value in _entries(settings or {}):
        value = value if isinstance(value, (str, bool, int, float)) else _plain(value)
        assignments.append(f"{key}={str(value).lower() if isinstance(value, bool) else value}")
    return assignments


def configuration(config: Config, settings: Settings | None = None) -> dict[str, Any]:
    """A configuration as nested dictionaries: ``{"model": {"layers": 4, ...}, "attention": ..., "training": ...}``.

    Parameters
    ----------
    config : str, path or mapping
        A TOML file, the name of a shipped configuration ("digits"), or dictionaries. Their keys may be dotted:
        ``{"training.steps": 100}``. ``linnet.settings()`` lists all keys.
    settings : mapping, optional
        Values in place of those of `config`.

    Raises
    ------
    linnet.UsageError
        For a file that does not exist or is no TOML. Keys and values are checked where the configuration is used.
    """
    _check_settings(settings)
    tables: dict[str, Any] = {}
    if isinstance(config, Mapping):
        _merge(tables, config)
    elif isinstance(config, (str, os.PathLike)):
        _merge(tables, _read(_find(os.fspath(config))))
    else:
        raise _core.ArgumentTypeError(
            f"[config] expected a dictionary, a TOML file or a name, got {type(config).__name__}"
        )
    _merge(tables, settings or {})
    for name in ("model", "attention", "image", "data", "training"):
        if not isinstance(tables.get(name, {}), Mapping):
            raise _core.UsageError(f"[config] expected {name} to be a table of options, got {tables[name]!r}")
    return tables


def complete_described(operation: str, tables: Mapping) -> None:
    """Completes a configuration of a model that is made without data: its vocabulary follows from fields and columns. Refuses one that
    leaves to data what else they would decide."""
    known = ("model", "attention", "image", "data", "training", "run", "fingerprint", "model_type", "format")
    for name in tables:
        if name not in known:
            raise _core.UsageError(f"[{operation}] expected tables among {', '.join(known[:5])}, got {name}")
    model = tables.get("model", {})
    if "length" not in model:
        raise _core.UsageError(f"[{operation}] expected model.length, since no data decide it here, got none")
    if not {"vocabulary", "fields", "columns"} & set(model):
        raise _core.UsageError(
            f"[{operation}] expected model.vocabulary, model.fields or model.columns, since no data decide them here, got none"
        )
    if "vocabulary" not in model:
        model["vocabulary"] = max(_sizes_of(operation, model.get("fields", "")), default=0)


def _sizes_of(operation: str, fields: Any) -> list[int]:
    """The sizes in model.fields, which is text with commas."""
    try:
        return [int(size) for size in str(fields).split(",") if size.strip()]
    except ValueError:
        raise _core.UsageError(f"[{operation}] expected model.fields as numbers with commas between, got {fields!r}") from None


def json_of(tables: Mapping) -> str:
    """What the C++ module reads. Numbers of NumPy become Python's."""
    kept = {name: table for name, table in tables.items() if name not in ("run", "fingerprint", "model_type", "format")}
    try:
        return json.dumps(kept, default=_plain, allow_nan=False)
    except ValueError as error:
        raise _core.UsageError(f"[config] expected finite numbers, got others: {error}") from error


def model_tables(text: str) -> dict[str, dict[str, Any]]:
    """The tables of a model, of a configuration as the C++ module writes it."""
    tables = json.loads(text)
    return {name: tables[name] for name in ("model", "attention", "image")}
