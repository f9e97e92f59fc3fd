"""From a model's configuration to its layers, for the architectures of which a test has asked vLLM 0.20.2 as well.

What is not here is not guessed: an unknown architecture is an error that says what to give instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from kvgate.explain.config_file import DUMP_INSTEAD, Config
from kvgate.explain.layers import Layer
from kvgate.explain.serving import Platform, Serving
from kvgate.explain.states import block_tokens, gated_delta_net, mode_of
from kvgate.kernel.errors import UsageError
from kvreference.attention import Kind
from kvreference.mamba import StateMode

BLOCK_TOKENS = {Platform.GPU: 16, Platform.ASCEND: 128}
"""The block size where none is given."""
_LATENT_BLOCK_TOKENS = 64
"""The same for latent attention on a GPU (FlashMLA)."""

_MISTRAL_WINDOW_TOKENS = 4096
"""What a file of Mistral's that does not speak of a window means."""

Family: TypeAlias = Callable[[Config, Serving], list[Layer]]


def layers_of(config: Config, serving: Serving) -> list[Layer]:
    """The layers of the model that keep something, in order, without those of a draft model.

    Raises:
        UsageError: the architecture is not known here, or lacks a number.
    """
    family = FAMILIES.get(config.model_type)
    if family is None:
        known = ", ".join(sorted({*FAMILIES, "deepseek_v4"}))
        raise UsageError(
            f"{config.path}: the architecture {config.model_type!r} is not known here, so its groups would be a "
            f"guess: {DUMP_INSTEAD}. Known are {known}"
        )
    return family(config, serving)


def _block_tokens(serving: Serving) -> int:
    return serving.block_size or BLOCK_TOKENS[serving.platform]


def _heads(total: int, serving: Serving) -> int:
    """How many of ``total`` heads one worker keeps."""
    return max(1, total // serving.workers)


def _attention(
    serving: Serving,
    heads: int,
    size: int,
    kind: Kind = Kind.FULL,
    window_tokens: int | None = None,
    tokens: int | None = None,
) -> Layer:
    """A layer that keeps a key and a value for every token."""
    tokens = tokens or _block_tokens(serving)
    kept = _heads(heads, serving)
    return Layer(kind, tokens, 2 * tokens * kept * size * serving.cache_element_bytes, (kept, size), window_tokens)


def _alike(config: Config, serving: Serving) -> list[Layer]:
    """All layers slide if there is a window, and none if there is not; Mistral has one unless its file says null."""
    usual = _MISTRAL_WINDOW_TOKENS if config.model_type == "mistral" else 0
    configured = "sliding_window" in config.values
    window = config.optional("sliding_window") if configured else usual or None
    kind = Kind.SLIDING_WINDOW if window else Kind.FULL
    return [_attention(serving, config.kv_heads, config.head_size, kind, window)] * config.layers


def _full(config: Config, serving: Serving) -> list[Layer]:
    """No window slides, whatever the file says of one that is not used."""
    if config.values.get("use_sliding_window"):
        raise UsageError(
            f"{config.path}: use_sliding_window is on, and which layers slide then is not known here: {DUMP_INSTEAD}"
        )
    return [_attention(serving, config.kv_heads, config.head_size)] * config.layers


def _slides(config: Config, pattern: int) -> list[bool]:
    """Which layers slide: as in the file, else all but the last of every ``pattern``."""
    configured = config.texts("layer_types", config.layers)
    if configured is not None:
        return [word == "sliding_attention" for word in configured]
    every = config.optional("sliding_window_pattern") or pattern
    return [bool((index + 1) % every) for index in range(config.layers)]


def _typed(pattern: int) -> Family:
    """Each layer slides or not, of one shape."""

    def layers(config: Config, serving: Serving) -> list[Layer]:
        window = config.number("sliding_window")
        slides = _attention(serving, config.kv_heads, config.head_size, Kind.SLIDING_WINDOW, window)
        full = _attention(serving, config.kv_heads, config.head_size)
        return [slides if each else full for each in _slides(config, pattern)]

    return layers


def _gpt_oss(config: Config, serving: Serving) -> list[Layer]:
    """Every other layer slides, the first among them, whatever the file's types say: so vLLM has it."""
    slides = _attention(
        serving, config.kv_heads, config.head_size, Kind.SLIDING_WINDOW, config.number("sliding_window")
    )
    full = _attention(serving, config.kv_heads, config.head_size)
    return [full if index % 2 else slides for index in range(config.layers)]


def _gemma4(config: Config, serving: Serving) -> list[Layer]:
    """Full layers have heads of their own; the last layers keep nothing where they share what earlier ones keep."""
    window = config.number("sliding_window")
    slides = _attention(serving, config.kv_heads, config.head_size, Kind.SLIDING_WINDOW, window)
    shared_heads = config.optional("num_global_key_value_heads") if config.values.get("attention_k_eq_v") else None
    size = config.optional("global_head_dim") or config.head_size
    full = _attention(serving, shared_heads or config.kv_heads, size)
    own = config.layers - config.number("num_kv_shared_layers", 0)
    return [slides if each else full for each in _slides(config, 6)[:own]]


def _llama4(config: Config, serving: Serving) -> list[Layer]:
    """Attention in chunks, and full attention where no position is encoded."""
    chunk = config.optional("attention_chunk_size")
    full = _attention(serving, config.kv_heads, config.head_size)
    local = full if chunk is None else _attention(serving, config.kv_heads, config.head_size, Kind.CHUNKED_LOCAL, chunk)
    configured = config.numbers("no_rope_layers", config.layers)
    every = config.optional("no_rope_layer_interval") or 4
    encoded = configured or [int(bool((index + 1) % every)) for index in range(config.layers)]
    return [local if each else full for each in encoded]


def _latent(config: Config, serving: Serving) -> list[Layer]:
    """Latent attention: one vector for all heads, on every worker."""
    tokens = serving.block_size or (
        BLOCK_TOKENS[Platform.ASCEND] if serving.platform is Platform.ASCEND else _LATENT_BLOCK_TOKENS
    )
    size = config.number("kv_lora_rank") + config.number("qk_rope_head_dim")
    return [Layer(Kind.FULL, tokens, tokens * size * serving.cache_element_bytes, (1, size))] * config.layers


def _delta_net(config: Config, serving: Serving) -> list[Layer]:
    """Gated delta nets, and full attention in between whose blocks are as large as their states."""
    state, element = gated_delta_net(config, serving), serving.cache_element_bytes
    key_bytes = _heads(config.kv_heads, serving) * config.head_size * element
    tokens = block_tokens(state, 2 * key_bytes, key_bytes, serving)
    full = _attention(serving, config.kv_heads, config.head_size, tokens=tokens)
    mode = mode_of(serving)
    span = tokens
    if mode is StateMode.NONE:
        span = serving.max_model_len or config.number("max_position_embeddings")
    linear = Layer(Kind.MAMBA, span, full.block_bytes, states=mode, draft_states=serving.drafts)
    configured = config.texts("layer_types", config.layers)
    every = config.optional("full_attention_interval") or 4
    kinds = configured or ["linear_attention" if (i + 1) % every else "full_attention" for i in range(config.layers)]
    return [linear if kind == "linear_attention" else full for kind in kinds]


FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("llama", "qwen2", "qwen3", "qwen3_moe", "granite"), _full),
    **dict.fromkeys(("mistral", "mixtral"), _alike),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _latent),
    "gemma2": _typed(2),
    "gemma3_text": _typed(6),
    "cohere2": _typed(4),
    "olmo3": _typed(4),
    "gemma4_text": _gemma4,
    "gpt_oss": _gpt_oss,
    "llama4_text": _llama4,
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _delta_net),
}
"""By model type."""
