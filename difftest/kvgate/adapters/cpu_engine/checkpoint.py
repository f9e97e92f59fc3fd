"""A tiny model as vLLM loads one: a folder with a configuration, a tokenizer of words, and random weights.

The weights are spread so that an answer depends on every token before it, and so that answers are made of few tokens.
Then a draft is sometimes right although no model was trained.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kvgate.adapters.cpu_engine.hybrids import HYBRIDS, POSITIONS_MAX, SPECIAL, VOCABULARY, Hybrid
from kvgate.adapters.cpu_engine.words import words

if TYPE_CHECKING:
    import torch

SPREAD = 0.35
"""The scale of the layers' weights: with much smaller ones, the model repeats one token after every prompt."""
ANSWERS = 8
"""How many tokens answers are made of."""
QUIET = 0.05
"""By how much the rows of the other tokens are smaller."""


def write_model(hybrid: Hybrid, folder: Path, seed: int = 1) -> Path:
    """Write a tiny model into ``folder``, and return that."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    models: Any = AutoModelForCausalLM
    folder.mkdir(parents=True, exist_ok=True)
    _write_config(folder, hybrid.config)
    _write_tokenizer(folder)
    with torch.device("meta"):
        model = models.from_config(AutoConfig.from_pretrained(folder))
    shapes = {name: tuple(weight.shape) for name, weight in sorted(model.state_dict().items())}
    _write_weights(folder, _random_tensor(shapes, seed, hybrid.norms_around, hybrid.scales))
    return folder


def write_draft(hybrid: Hybrid, folder: Path, seed: int = 3) -> Path:
    """Write a draft model for ``hybrid``: EAGLE's one layer of full attention, with the model's embedding and head."""
    hidden, heads, inner = hybrid.config["hidden_size"], 64, 128
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": POSITIONS_MAX,
        "dtype": "float32",
        "tie_word_embeddings": False,
    }
    layer = "layers.0."
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, 2 * hidden),
        f"{layer}self_attn.q_proj.weight": (heads, hidden),
        f"{layer}self_attn.k_proj.weight": (heads // 2, hidden),
        f"{layer}self_attn.v_proj.weight": (heads // 2, hidden),
        f"{layer}self_attn.o_proj.weight": (hidden, heads),
        f"{layer}mlp.gate_proj.weight": (inner, hidden),
        f"{layer}mlp.up_proj.weight": (inner, hidden),
        f"{layer}mlp.down_proj.weight": (hidden, inner),
        f"{layer}post_attention_layernorm.weight": (hidden,),
    }
    folder.mkdir(parents=True, exist_ok=True)
    _write_config(folder, config)
    _write_weights(folder, _random_tensor(shapes, seed, 1.0, {}))
    return folder


def _random_tensor(
    shapes: Mapping[str, tuple[int, ...]], seed: int, norms_around: float, scales: Mapping[str, float]
) -> dict[str, torch.Tensor]:
    """Weights that are spread."""
    import torch

    chance = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=chance)
        own = next((scale for part, scale in scales.items() if part in name), None)
        if "norm" in name:
            values = (norms_around if own is None else own) + 0.05 * values
        elif name.startswith("lm_head"):
            values[ANSWERS + len(SPECIAL) :] *= QUIET
            values[: len(SPECIAL)] *= QUIET
        elif "embed" in name:
            values *= 1.0 if own is None else own
        else:
            values *= SPREAD if len(shape) > 1 else 0.1
        weights[name] = values
    return weights


def _write_config(folder: Path, config: Mapping[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def _write_weights(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write_tokenizer(folder: Path) -> None:
    """A word is a token, and one that is not known is the last special one."""
    # Neither has types.
    tokenizers, transformers = (cast("Any", import_module(name)) for name in ("tokenizers", "transformers"))

    pad, bos, eos, unknown = SPECIAL
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *words(VOCABULARY - len(SPECIAL))])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, bos_token=bos, eos_token=eos, unk_token=unknown
    ).save_pretrained(folder)


def model_in(folder: Path, name: str) -> Path:
    """The tiny model called ``name`` in ``folder``, which is made if it is not there."""
    return _made(folder / name, lambda whole: write_model(HYBRIDS[name], whole))


def draft_in(folder: Path, name: str) -> Path:
    """The draft model of ``name``, likewise."""
    return _made(folder / f"{name}-draft", lambda whole: write_draft(HYBRIDS[name], whole))


def _made(folder: Path, write: Callable[[Path], Path]) -> Path:
    # The weights are written last, so a folder that has them is whole.
    return folder if (folder / "model.safetensors").exists() else write(folder)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in HYBRIDS:
        sys.exit(f"usage: python -m kvgate.adapters.cpu_engine.checkpoint {'|'.join(HYBRIDS)} FOLDER")
    write_model(HYBRIDS[sys.argv[1]], Path(sys.argv[2]))
