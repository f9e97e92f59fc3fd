"""From a model's configuration to its layers, for the architectures of which vLLM was asked as well.

Which releases make the same groups of them: ``difftest/families.md``.

What is not here is not guessed: an unknown architecture is an error that says what to give instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from kvgate.explain.config_file import DUMP_INSTEAD, Config
from kvgate.explain.layers import Layer
from kvgate.explain.serving import SEES_ONE_MORE, Platform, Serving
from kvgate.explain.states import (
    State,
    block_tokens,
    chunk_tokens,
    gated_delta_net,
    lightning,
    mode_of,
    multi_head,
    selective,
    short_convolution,
)
from kvgate.kernel.errors import UsageError
from kvgate.kernel.versions import Span
from kvreference.attention import Kind
from kvreference.mamba import StateMode

BLOCK_TOKENS = {Platform.GPU: 16, Platform.ASCEND: 128}
"""The block size where none is given."""
_LATENT_BLOCK_TOKENS = 64
"""The same for latent attention on a GPU (FlashMLA)."""

_MISTRAL_WINDOW_TOKENS = 4096
"""What a file of Mistral's that does not speak of a window means."""

Family: TypeAlias = Callable[[Config, Serving], list[Layer]]
NewState: TypeAlias = Callable[[Config, Serving], State]


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
    if serving.platform is Platform.GPU and serving.release not in _OWN_MODELS.get(config.model_type, Span()):
        raise UsageError(
            f"{config.path}: {serving.engine} has no model of its own for {config.model_type!r}, and takes another: "
            f"{DUMP_INSTEAD}"
        )
    return family(config, serving)


_OWN_MODELS = {
    **dict.fromkeys(("bamba", "minimax"), Span("0.0.0", "0.24.0")),
    "gemma4_text": Span("0.19.0"),
}
"""The releases that have a model of their own for a family, where some that are described have none."""


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
    """No window slides, even if the file names one that is not used."""
    if config.values.get("use_sliding_window"):
        raise UsageError(
            f"{config.path}: use_sliding_window is on, and which layers slide then is not known here: {DUMP_INSTEAD}"
        )
    return [_attention(serving, config.kv_heads, config.head_size)] * config.layers


def _multi_query(config: Config, serving: Serving) -> list[Layer]:
    """Full attention, of which all heads may share one key (Falcon, GPTBigCode), or a few (ChatGLM, newer Falcon)."""
    shared = config.values.get("multi_query", config.values.get("multi_query_attention", True))
    heads = (config.optional("multi_query_group_num") or 1) if shared else config.heads
    if config.values.get("new_decoder_architecture"):
        heads = config.number("num_kv_heads", config.heads)
    return [_attention(serving, heads, config.head_size)] * config.layers


def _dbrx(config: Config, serving: Serving) -> list[Layer]:
    """Full attention, described in an object of its own."""
    heads = config.inner("attn_config").number("kv_n_heads", config.heads)
    return [_attention(serving, heads, config.head_size)] * config.layers


def _slides(config: Config, pattern: int) -> list[bool]:
    """Which layers slide: as in the file, else all but the last of every ``pattern``."""
    configured = config.texts("layer_types", config.layers)
    if configured is not None:
        return [word == "sliding_attention" for word in configured]
    # Exaone writes it as a word of one letter for each layer.
    written = config.values.get("sliding_window_pattern")
    every = len(written) if isinstance(written, str) else config.optional("sliding_window_pattern")
    every = every or pattern
    return [bool((index + 1) % every) for index in range(config.layers)]


def _typed(pattern: int) -> Family:
    """Each layer slides or not, of one shape."""

    def layers(config: Config, serving: Serving) -> list[Layer]:
        full = _attention(serving, config.kv_heads, config.head_size)
        sliding = _slides(config, pattern)
        if not any(sliding):
            return [full] * config.layers
        window = config.number("sliding_window")
        slides = _attention(serving, config.kv_heads, config.head_size, Kind.SLIDING_WINDOW, window)
        return [slides if each else full for each in sliding]

    return layers


def _cohere2(config: Config, serving: Serving) -> list[Layer]:
    """Typed; where a window counts the token that sees, too, it is one longer than the file says."""
    window = config.number("sliding_window") + (serving.release in SEES_ONE_MORE)
    return _typed(4)(Config(config.path, {**config.values, "sliding_window": window}), serving)


def _gpt_oss(config: Config, serving: Serving) -> list[Layer]:
    """Every other layer slides, the first among them, even if the file's types differ: vLLM does the same."""
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
    linear, full = _mixed(config, serving, gated_delta_net(config, serving), mode_of(serving))
    configured = config.texts("layer_types", config.layers)
    every = config.optional("full_attention_interval") or 4
    kinds = configured or ["linear_attention" if (i + 1) % every else "full_attention" for i in range(config.layers)]
    return [linear if kind == "linear_attention" else full for kind in kinds]


def _mixed(config: Config, serving: Serving, state: State, mode: StateMode) -> tuple[Layer, Layer]:
    """A layer that keeps states, and one of attention next to such: with blocks of the same size."""
    key_bytes = _heads(config.kv_heads, serving) * config.head_size * serving.cache_element_bytes
    chunk = chunk_tokens(config) if mode is StateMode.ALL else 1
    tokens = block_tokens(state, 2 * key_bytes, key_bytes, serving, chunk)
    full = _attention(serving, config.kv_heads, config.head_size, tokens=tokens)
    span = tokens
    if mode is StateMode.NONE:
        span = serving.max_model_len or config.number("max_position_embeddings", _STATE_SPAN_TOKENS)
    return Layer(Kind.MAMBA, span, full.block_bytes, states=mode, draft_states=serving.drafts), full


def _hybrid(kinds: Callable[[Config], list[str]], state: NewState, keeps_all: bool = False) -> Family:
    """States and attention, by the word that ``kinds`` has for each layer."""

    def layers(config: Config, serving: Serving) -> list[Layer]:
        if serving.platform is Platform.ASCEND:
            raise UsageError(f"{config.path}: {config.model_type} is not known on Ascend here: {DUMP_INSTEAD}")
        kept, full = _mixed(config, serving, state(config, serving), mode_of(serving, keeps_all))
        made = {_STATE: [kept], _FULL: [full], _BOTH: [full, kept], _NEITHER: []}
        return [layer for kind in kinds(config) for layer in made[kind]]

    return layers


def _states_alone(state: NewState) -> Family:
    """Nothing but states, all of which can be kept."""

    def layers(config: Config, serving: Serving) -> list[Layer]:
        if serving.platform is Platform.ASCEND:
            raise UsageError(f"{config.path}: {config.model_type} is not known on Ascend here: {DUMP_INSTEAD}")
        mode = mode_of(serving, keeps_all=True, attends=False)
        tokens = _block_tokens(serving)
        if mode is StateMode.NONE:
            tokens = serving.max_model_len or config.number("max_position_embeddings", _STATE_SPAN_TOKENS)
        kept = Layer(Kind.MAMBA, tokens, state(config, serving).bytes, states=mode, draft_states=serving.drafts)
        return [kept] * config.layers

    return layers


_STATE, _FULL, _BOTH, _NEITHER = "states", "full attention", "both", "neither"
_STATE_SPAN_TOKENS = 2048
"""How long a request may become if neither the model's file nor vLLM's flags say it."""


def _by_type(states: str, attention: str) -> Callable[[Config], list[str]]:
    """Each layer by the word that the file has for it: as ``layer_types``, or by a list of the layers of attention."""

    def kinds(config: Config) -> list[str]:
        words = config.texts("layer_types", config.layers)
        if words is None:
            indices = config.values.get("full_attn_idxs") or config.values.get("attn_layer_indices")
            if not isinstance(indices, list):
                raise UsageError(f"{config.path}: {config.model_type} needs layer_types, and it is not there")
            words = [attention if index in indices else states for index in range(config.layers)]
        if not set(words) <= {states, attention}:
            raise UsageError(f"{config.path}: layer_types has other words than {states} and {attention}")
        return [_STATE if word == states else _FULL for word in words]

    return kinds


def _jamba(config: Config) -> list[str]:
    """Attention once a period."""
    period, offset = config.number("attn_layer_period", 8), config.number("attn_layer_offset", 4)
    return [_FULL if index % max(1, period) == offset else _STATE for index in range(config.layers)]


def _nemotron(config: Config) -> list[str]:
    """A letter for each layer: Mamba, attention (*), and those that keep nothing."""
    pattern = config.values.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or not set(pattern) <= set("M*-E") or len(pattern) != config.layers:
        raise UsageError(f"{config.path}: {config.model_type} needs hybrid_override_pattern, a letter for each layer")
    return [{"M": _STATE, "*": _FULL}.get(letter, _NEITHER) for letter in pattern]


def _zamba(config: Config) -> list[str]:
    """Mamba in every layer, and in some of them attention as well, which vLLM builds first."""
    words = config.texts("layers_block_type", config.layers)
    if words is None:
        raise UsageError(f"{config.path}: {config.model_type} needs layers_block_type, and it is not there")
    return [*(_FULL for word in words if word != "mamba"), *(_STATE for _word in words)]


_PLAIN = (
    *("llama", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "granite", "granitemoe", "granitemoeshared", "arcee"),
    *("cohere", "dots1", "ernie4_5", "ernie4_5_moe", "gemma", "glm", "glm4", "glm4_moe", "gpt2", "gptj", "gpt_neox"),
    *("hunyuan_v1_dense", "hunyuan_v1_moe", "minimax_m2", "ministral3", "nemotron", "olmo", "olmo2", "olmoe"),
    *("flex_olmo", "opt", "persimmon", "phi", "seed_oss", "stablelm"),
)
"""Full attention in every layer, and keys of as many heads and elements in each."""

FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(_PLAIN, _full),
    **dict.fromkeys(("mistral", "mixtral", "phi3", "phimoe", "starcoder2"), _alike),
    **dict.fromkeys(("falcon", "gpt_bigcode", "chatglm"), _multi_query),
    "dbrx": _dbrx,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"), _latent),
    "longcat_flash": lambda config, serving: 2 * _latent(config, serving),
    "gemma2": _typed(2),
    "gemma3_text": _typed(6),
    "cohere2": _cohere2,
    **dict.fromkeys(("olmo3", "exaone4", "exaone_moe", "afmoe", "cwm"), _typed(4)),
    "gemma4_text": _gemma4,
    "gpt_oss": _gpt_oss,
    "llama4_text": _llama4,
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _delta_net),
    "jamba": _hybrid(_jamba, selective, keeps_all=True),
    **dict.fromkeys(("bamba", "granitemoehybrid"), _hybrid(_by_type("mamba", "attention"), multi_head, keeps_all=True)),
    "falcon_h1": _hybrid(lambda config: [_BOTH] * config.layers, multi_head, keeps_all=True),
    "nemotron_h": _hybrid(_nemotron, multi_head, keeps_all=True),
    "zamba2": _hybrid(_zamba, multi_head, keeps_all=True),
    **dict.fromkeys(("lfm2", "lfm2_moe"), _hybrid(_by_type("conv", "full_attention"), short_convolution)),
    "minimax": _hybrid(_by_type("linear_attention", "full_attention"), lightning),
    **dict.fromkeys(("mamba", "falcon_mamba"), _states_alone(selective)),
    "mamba2": _states_alone(multi_head),
}
"""By model type."""
