"""Stand-ins for the models that vLLM's own tests name: a cache as the hub's client would leave it, made here.

Configurations with the published numbers, a tokenizer of one word a token, processors for what looks at pictures.
No weights, and nothing from a hub: what needs those is not run.
"""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from .published import MODELS, Model

REVISION = "0" * 40


def write(cache: Path) -> Path:
    """Stand-ins for all of ``MODELS``, below ``cache``: what ``HF_HOME`` is to be."""
    shutil.rmtree(cache / "hub", ignore_errors=True)
    for model in MODELS:
        home = cache / "hub" / f"models--{model.name.replace('/', '--')}"
        snapshot = home / "snapshots" / REVISION
        snapshot.mkdir(parents=True)
        (home / "refs").mkdir()
        (home / "refs" / "main").write_text(REVISION)
        for name, content in model.files.items():
            (snapshot / name).write_text(json.dumps(content, indent=1))
        _write_tokenizer(model, snapshot)
    return cache


def _write_tokenizer(model: Model, folder: Path) -> None:
    """One word, one token."""
    tokenizers: Any = import_module("tokenizers")
    models, pre_tokenizers = tokenizers.models, tokenizers.pre_tokenizers
    known = {number: word for word, number in model.tokens.items()}
    words = {known.get(number, f"w{number}"): number for number in range(model.files["config.json"]["vocab_size"])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(words, unk_token=known.get(0, "w0")))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([tokenizers.AddedToken(word, special=True) for word in model.tokens])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": model.eos}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | model.tokenizer, indent=1))
