"""Linnet's model folders from PyTorch modules, and back. docs/format.md describes the files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import torch

from .. import _core
from .._arguments import folder_of
from .._model import load
from ._arguments import default_features, refuse, refuse_type
from ._models import IMAGE, SequenceModel, check_parts


def _tensors(model: SequenceModel) -> dict:
    """The tensors of a model under the names of its file: functions that read and write parts of parameters."""
    named = {"embedding.weight": [model.embedding.weight]}
    if model.positions is not None:
        named["embedding.positions"] = [model.positions]
    tables = model.config
    for i, layer in enumerate(model.encoder.layers):
        attention, prefix = layer.attention, f"layers.{i}."
        projections = [attention.query_projection, attention.key_projection, attention.value_projection]
        if tables["attention"]["family"] == "lsh":  # keys are queries
            del projections[1]
        for part in ("weight", "bias"):
            named[f"{prefix}attention.qkv.{part}"] = [getattr(projection, part) for projection in projections]
            named[f"{prefix}attention.output.{part}"] = [getattr(attention.out_projection, part)]
            named[f"{prefix}norm1.{part}"] = [getattr(layer.norm1, part)]
            named[f"{prefix}norm2.{part}"] = [getattr(layer.norm2, part)]
            named[f"{prefix}feed_forward.first.{part}"] = [getattr(layer.linear1, part)]
            named[f"{prefix}feed_forward.second.{part}"] = [getattr(layer.linear2, part)]
        inner = attention.inner_attention
        for name in ("decay", "key_projection", "value_projection"):
            parameter = getattr(inner, name, None)
            if parameter is not None and not (
                name == "key_projection" and i > 0 and tables["attention"]["sharing"] == "layerwise"
            ):
                named[f"{prefix}attention.{name}"] = [parameter]
    if model.encoder.norm is not None:
        named["final_norm.weight"], named["final_norm.bias"] = [model.encoder.norm.weight], [model.encoder.norm.bias]
    if not tables["model"]["tied_output"]:
        named["head.weight"] = [model.head.weight]
    named["head.bias"] = [model.head.bias]
    return named


_FILES = ("labels.json", "tokenizer.model")


def _write(path: Path, *parts: bytes) -> None:
    """A file that a reader sees whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def export(module: SequenceModel, folder) -> None:
    """Writes a Linnet model: config.json and model.safetensors, which the program, the C++ library and `linnet.load` read.

    Parameters
    ----------
    module : SequenceModel
        Made from a configuration, or from modules of your own with `SequenceModel.of`.
    folder : path
        Made where it does not exist.

    labels.json and tokenizer.model are written for an imported model that has them, and removed from the folder for any other.
    The logits agree with the module's within 1e-4.
    """
    if not isinstance(module, SequenceModel):
        refuse_type("export", "a linnet.torch.SequenceModel (SequenceModel.of makes one of your modules)", type(module).__name__)
    check_parts(module)
    arrays = {}
    for name, parts in _tensors(module).items():
        arrays[name] = torch.cat([part.detach().to("cpu", torch.float32) for part in parts]).contiguous().numpy()
        if not np.isfinite(arrays[name]).all():
            refuse("export", f"finite numbers in {name}", "others")
    header, offset = {"__metadata__": {"format": "linnet"}}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    tables = {name: table for name, table in module.config.items() if name != "image" or table != IMAGE}
    config = {"model_type": "linnet", "format": 1, **tables}
    folder = Path(folder_of("export", folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        numbers = (array.tobytes() for array in arrays.values())
        # In this order, a program that is killed between them leaves no weights without their configuration.
        _write(folder / "config.json", json.dumps(config, indent=2).encode())
        for name in _FILES:
            if name in module.files:
                _write(folder / name, module.files[name])
            else:
                (folder / name).unlink(missing_ok=True)
        _write(folder / "model.safetensors", len(text).to_bytes(8, "little"), text, *numbers)
    except OSError as error:
        raise _core.Error(f"[export] expected to write {folder}, got {error.strerror}") from error


_KINDS = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2"), "I8": np.dtype("i1")}


def _read_tensors(path: Path) -> dict:
    """The tensors of a file that the library has loaded, and so checked."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[start + begin : start + end], _KINDS[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = array.astype(np.float32)
    for name in [name for name in tensors if name.endswith("_scale") and name[: -len("_scale")] in tensors]:
        scale = tensors.pop(name)
        tensors[name[: -len("_scale")]] *= scale.reshape(-1, 1)
    return tensors


def _check_draws(model: SequenceModel, tensors: dict) -> None:
    """The numbers of a random map are drawn from the seed; throws where a file has others, and removes them."""
    table, sizes = model.config["attention"], model.config["model"]
    parts = ("directions", "phases", "signs", "lengths")
    for name in [name for name in tensors if name.endswith(tuple(f".attention.{part}" for part in parts))]:
        stored = tensors.pop(name)
        if table["family"] != "linear" or not table["feature_map"].startswith(("favor", "random-")):
            continue
        head_dim = sizes["width"] // sizes["heads"]
        features = table["features"] or default_features(head_dim)
        layer = int(name.split(".")[1])
        draws = _core.random_draws(table["feature_map"], head_dim, features, table["directions"], table["seed"], layer)
        part = name.rsplit(".", 1)[1]
        other = ("directions",) if draws["signs"].size > 0 else ("signs", "lengths")
        if part in other:  # of another configuration, which the model ignores
            continue
        drawn = draws[part]
        if stored.size != drawn.size or not np.array_equal(stored.reshape(-1), drawn.reshape(-1)):
            refuse("import", f"directions that attention.seed draws ({name})", "others, of a model with attention.redraw")


def import_(folder) -> SequenceModel:
    """The Linnet model of a folder as a PyTorch module, in evaluation mode.

    Parameters
    ----------
    folder : path
        A model's, with config.json and model.safetensors; bf16 and int8 weights become the float32 numbers that they stand for.

    Returns
    -------
    SequenceModel, whose logits agree within 1e-4 with those of the library with the same weights in f32
    (``linnet.load(folder, {"model.weights": "f32"})``); with bf16 and int8 weights the library rounds more than these
    """
    folder = Path(folder_of("import", folder))
    model = SequenceModel(load(folder).config)
    tensors = _read_tensors(folder / "model.safetensors")
    _check_draws(model, tensors)
    model.files = {name: (folder / name).read_bytes() for name in _FILES if (folder / name).exists()}
    with torch.no_grad():
        for name, parts in _tensors(model).items():
            if name not in tensors:
                refuse("import", f"the tensor {name}", "a file without it")
            array = torch.from_numpy(tensors.pop(name))
            shape = [sum(part.shape[0] for part in parts), *parts[0].shape[1:]]
            if list(array.shape) != shape:
                refuse("import", f"{name} {shape}", f"{list(array.shape)}")
            for part, rows in zip(parts, array.split([part.shape[0] for part in parts])):
                part.copy_(rows)
        if tensors:
            refuse("import", "tensors of the model alone", ", ".join(sorted(tensors)[:3]))
    return model.eval()
