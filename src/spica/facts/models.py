"""Model facts from a shipped Hugging Face config or a local one. Nothing here reaches for the network."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from spica.errors import InputError, NoPerfDatabase, Problem, nearest
from spica.facts.hardware import BACKENDS

_KEY = "search_space.model_name"
_REQUIRED = (
    "architectures",
    "hidden_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "vocab_size",
)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the enumerator needs to know of a model.

    ``name`` is what the user wrote, ``path`` what the estimator and the replay are given: a shipped id, or
    the absolute folder of a local ``config.json``. ``context_length`` is the longest sequence in tokens.
    ``quantization`` is the checkpoint's scheme (``fp8_block``, ``nvfp4``, ...), None when it is not
    quantized.
    """

    name: str
    path: str
    architecture: str
    is_moe: bool
    context_length: int
    num_experts: int
    num_layers: int
    dtype: str
    quantization: str | None

    @property
    def is_quantized(self) -> bool:
        return self.quantization is not None


class _Model(Protocol):
    def get_resident_weights_bytes(self) -> float: ...


@lru_cache(maxsize=1)
def known_models() -> tuple[str, ...]:
    """The Hugging Face ids whose configs ship with the estimator, sorted."""
    from aisimulate_core.sdk.common import DefaultHFModels

    return tuple(sorted(DefaultHFModels))


@lru_cache(maxsize=256)
def model_facts(model: str) -> ModelFacts:
    """Facts of a shipped model id, of a folder with a ``config.json``, or of such a file.

    A folder wins over a shipped id of the same name, as it does in the estimator.

    Raises NoPerfDatabase for a model that is neither shipped nor local, or whose architecture has no model;
    InputError for a local config that cannot be used.
    """
    from aisimulate_core.sdk.models import check_is_moe
    from aisimulate_core.sdk.utils import get_model_config_from_model_path

    path = _resolve(model)
    try:
        config = get_model_config_from_model_path(path)
        is_moe = bool(check_is_moe(path))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise _unusable(model, path, error) from error
    raw = config["raw_config"]
    text = raw.get("text_config") or {}
    dtype = next((d[k] for d in (raw, text) for k in ("torch_dtype", "dtype") if d.get(k)), "bfloat16")
    quantization = raw.get("quant_algo")
    return ModelFacts(
        name=model,
        path=path,
        architecture=str(config["architecture"]),
        is_moe=is_moe,
        context_length=int(config["context"]),
        num_experts=int(config["num_experts"] or 0),
        num_layers=int(config["layers"]),
        dtype=str(dtype),
        quantization=None if quantization is None else str(quantization),
    )


@lru_cache(maxsize=256)
def model_weight_bytes(model: str, backend: str) -> int:
    """Bytes of the whole model's weights in ``backend``'s representation, quantization included.

    This is what one GPU would have to hold alone: the estimator's resident weights of a single-GPU worker.

    Raises what ``model_facts`` raises, and NoPerfDatabase when the estimator cannot build the model.
    """
    from aisimulate_core.sdk.config_builders import build_model_config
    from aisimulate_core.sdk.models import get_model

    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}")
    facts = model_facts(model)
    whole = build_model_config(tp_size=1, pp_size=1, attention_dp_size=1, moe_tp_size=1, moe_ep_size=1)
    try:
        built: _Model = get_model(facts.path, whole, backend)
    except (ValueError, NotImplementedError, KeyError) as error:
        raise NoPerfDatabase(
            Problem(message=f"{backend} cannot run '{model}': {_first_line(error)}", key=_KEY)
        ) from error
    return int(built.get_resident_weights_bytes())


def _resolve(model: str) -> str:
    """A shipped id as it is, or the absolute folder of a local config that was seen to be readable."""
    try:
        path = Path(model).expanduser()
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:
        # A name that no file system takes, or the home of a user there is not.
        raise _broken(model, f"not a path that can be looked at: {_first_line(error)}") from error
    if is_file:
        if path.name != "config.json":
            raise _broken(model, "a local model is a folder with a config.json, or that file itself")
        path = path.parent
    if path.is_dir() and model:
        _check_local(model, path / "config.json")
        return str(path.resolve())
    if model in known_models():
        return model
    if _looks_like_a_path(model):
        raise _broken(model, "there is no such folder")
    raise NoPerfDatabase(
        Problem(
            message=f"unknown model '{model}': it is not shipped, and models are not downloaded",
            key=_KEY,
            suggestion=nearest(model, known_models()) or "",
            remedy="`spica models` lists the shipped ones; for another, give a folder with its config.json",
        )
    )


def _looks_like_a_path(model: str) -> bool:
    return model.startswith((".", "~", os.sep)) or model.count("/") > 1 or model.endswith((".json", os.sep))


def _check_local(model: str, file: Path) -> None:
    if not file.is_file():
        raise _broken(model, "the folder has no config.json")
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _broken(model, f"config.json cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise _broken(model, f"config.json is not JSON: {_first_line(error)}") from error
    if not isinstance(raw, dict):
        raise _broken(model, f"config.json holds a {type(raw).__name__}, not an object")
    architectures = raw.get("architectures")
    if not (isinstance(architectures, list) and architectures and isinstance(architectures[0], str)):
        raise _broken(model, "config.json has no list of 'architectures'")
    text = raw.get("text_config")
    for part in (raw, text if isinstance(text, dict) else {}):
        for key in _REQUIRED[1:]:
            value = part.get(key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise _broken(model, f"{key} is {value!r}, not a positive whole number")


def _unusable(model: str, path: str, error: Exception) -> InputError:
    """The error for a config that was read but not understood."""
    if "is not supported" in str(error):
        text = _first_line(error).split(". Supported", 1)[0]
        return NoPerfDatabase(
            Problem(
                message=f"'{model}' cannot be modelled: {text}",
                key=_KEY,
                remedy="`spica models` shows the architectures that can",
            )
        )
    if isinstance(error, KeyError):
        return _broken(model, f"config.json lacks {error}")
    return _broken(model, f"config.json cannot be used: {type(error).__name__}: {_first_line(error)}")


def _broken(model: str, why: str) -> InputError:
    return InputError(
        Problem(
            message=f"local model '{model}': {why}",
            key=_KEY,
            remedy=f"its Hugging Face config.json is needed, with at least {', '.join(_REQUIRED)}",
        )
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
