"""A Hugging Face ``config.json``, read as far as the cache is concerned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import frozen

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import read_bytes

FILE_BYTES_MAX = 5_000_000
LAYERS_MAX = 1000
_NUMBER_MAX = 2**31
_INNER = ("text_config", "language_config", "llm_config")
"""Where a model of several modalities keeps what is about its text."""
DUMP_INSTEAD = (
    "write a dump of its KVCacheConfig where it is served, and give that: kvgate explain --dump-snippet prints how"
)


@frozen
class Config:
    """The part of a ``config.json`` that is about text."""

    path: Path
    values: dict[str, Any]

    @property
    def model_type(self) -> str:
        """What Hugging Face calls the architecture."""
        return str(self.values.get("model_type"))

    def number(self, name: str, default: int | None = None) -> int:
        """A count.

        Raises:
            UsageError: it is missing, or not a positive number.
        """
        value = self.values.get(name)
        if value is None:
            if default is None:
                raise UsageError(f"{self.path}: {self.model_type} needs {name}, and it is not there")
            return default
        if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
            raise UsageError(f"{self.path}: {name} must be a number, got {value!r:.80}")
        return value

    def optional(self, name: str) -> int | None:
        """A count that may be missing, null or zero."""
        return self.number(name, 0) or None

    def texts(self, name: str, length: int) -> list[str] | None:
        """One word for each layer, where the file has them.

        Raises:
            UsageError: it is something else, or not one for each.
        """
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise UsageError(f"{self.path}: {name} must be a list of words, one for each layer")
        if len(value) < length:
            raise UsageError(f"{self.path}: {name} names {len(value)} layers, and the model has {length}")
        return value[:length]

    def numbers(self, name: str, length: int) -> list[int] | None:
        """One number for each layer, where the file has them."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(each) is int for each in value) or len(value) < length:
            raise UsageError(f"{self.path}: {name} must be a list of at least {length} numbers, one for each layer")
        return value[:length]

    @property
    def layers(self) -> int:
        """How many layers there are."""
        layers = self.number(self._spelt("num_hidden_layers", "n_layers", "n_layer", "num_layers"))
        if not 1 <= layers <= LAYERS_MAX:
            raise UsageError(f"{self.path}: num_hidden_layers must be 1 to {LAYERS_MAX}, got {layers}")
        return layers

    @property
    def head_size(self) -> int:
        """How many elements a head has."""
        given = self._spelt("head_dim", "attention_head_dim", "kv_channels")
        hidden = self._spelt("hidden_size", "n_embd", "d_model")
        return self.optional(given) or self.number(hidden) // max(1, self.heads)

    @property
    def heads(self) -> int:
        """How many heads ask."""
        return self.number(self._spelt("num_attention_heads", "n_heads", "n_head"))

    @property
    def kv_heads(self) -> int:
        """How many heads keep keys and values."""
        return self.optional("num_key_value_heads") or self.heads

    def inner(self, name: str) -> Config:
        """The object of that name in the file; empty if there is none."""
        value = self.values.get(name)
        return Config(self.path, {**(value if isinstance(value, dict) else {}), "model_type": self.model_type})

    def _spelt(self, *names: str) -> str:
        """The one of several names for a thing that the file has; the first, if none."""
        return next((name for name in names if self.values.get(name) is not None), names[0])


def read(path: Path) -> Config:
    """The file at ``path``, or the ``config.json`` in the folder there.

    Raises:
        UsageError: it is missing, or not such a file.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        document = json.loads(read_bytes(file, FILE_BYTES_MAX))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not valid JSON: {error}") from error
    return of(document, file)


def of(document: object, path: Path) -> Config:
    """A ``config.json`` that is read already.

    Raises:
        UsageError: it is not one.
    """
    if not isinstance(document, dict):
        raise UsageError(f"{path}: a config.json is an object")
    values = document
    for name in _INNER:
        inner = document.get(name)
        if isinstance(inner, dict) and ("num_hidden_layers" in inner or "model_type" in inner):
            values = {**inner, "model_type": inner.get("model_type", document.get("model_type"))}
            break
    if not isinstance(values.get("model_type"), str):
        raise UsageError(f'{path}: has no "model_type"; is this the config.json of a model?')
    return Config(path, values)
