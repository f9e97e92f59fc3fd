"""State-space layers: how large a state is, and how large that makes the blocks of attention.

A state takes the same number of bytes for every block size. So attention's blocks are made at least as large as a
state, and the state is padded to them. For a model with large states a block spans hundreds of tokens, and so does
every hit.
"""

from __future__ import annotations

from math import lcm

from attrs import frozen

from kvgate.explain.config_file import Config
from kvgate.explain.serving import KEEPS_LAST_STATES, WIDE_STATES, Platform, Serving
from kvgate.kernel.errors import UsageError
from kvreference.mamba import StateMode

_KERNEL_TOKENS = 16
"""What attention's kernels on a GPU want blocks to be a multiple of."""
_KERNEL_TOKENS_ASCEND = 128
_STATED_TYPES = ("qwen3_5_text", "qwen3_5_moe_text")
"""Whose configuration says itself how large an element of a state is."""
_WIDE_TYPES = ("nemotron_h",)
"""Whose elements are wide in every release."""
_CHUNK_TOKENS = 2048
"""What a block with all states is a multiple of, where the model says nothing of chunks."""
_ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@frozen
class State:
    """What one layer keeps for one state."""

    convolution_bytes: int
    recurrent_bytes: int

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.convolution_bytes + self.recurrent_bytes


def gated_delta_net(config: Config, serving: Serving) -> State:
    """The state of a gated delta net (Qwen3-Next, Qwen3.5)."""
    tensor = serving.workers
    values, keys = config.number("linear_num_value_heads"), config.number("linear_num_key_heads")
    value_size, key_size = config.number("linear_value_head_dim"), config.number("linear_key_head_dim")
    channels = 2 * keys * key_size + values * value_size
    if channels % tensor or values % tensor:
        raise UsageError(f"--tensor-parallel-size {tensor} does not divide the heads of {config.model_type}")
    tokens = config.number("linear_conv_kernel_dim") - 1 + serving.drafts
    recurrent = values // tensor * value_size * key_size * _element_bytes(config, serving)
    return State(channels // tensor * tokens * serving.dtype_bytes, recurrent)


def selective(config: Config, serving: Serving) -> State:
    """The state of a first Mamba (Mamba, Jamba, FalconMamba): one for each channel."""
    channels = config.optional("intermediate_size") if config.values.get("state_size") else None
    channels = channels or config.number("mamba_expand", 2) * config.number("hidden_size")
    kernel = config.optional("conv_kernel") or config.number("mamba_d_conv")
    size = config.optional("state_size") or config.number("mamba_d_state")
    kept = _divided(channels, serving, "channels", config)
    return State(kept * (kernel - 1) * serving.dtype_bytes, kept * size * _element_bytes(config, serving))


def multi_head(config: Config, serving: Serving) -> State:
    """The state of a second Mamba (Mamba 2, Bamba, Granite, Falcon-H1, Nemotron-H, Zamba 2): one for each head."""

    def number(*names: str) -> int:
        return next(filter(None, map(config.optional, names)), 0) or config.number(names[0])

    heads = number("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    head_size = number("mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim")
    groups = number("mamba_n_groups", "mamba_ngroups", "n_groups")
    size = number("mamba_d_state", "ssm_state_size", "state_size")
    kernel = number("mamba_d_conv", "conv_kernel")
    if groups == 1:
        # Each worker has the one.
        groups = serving.workers
    channels = _divided(heads * head_size + 2 * groups * size, serving, "channels", config)
    recurrent = _divided(heads, serving, "heads", config) * head_size * size * _element_bytes(config, serving)
    return State(channels * (kernel - 1 + serving.drafts) * serving.dtype_bytes, recurrent)


def short_convolution(config: Config, serving: Serving) -> State:
    """What a short convolution keeps (LFM2): the last tokens, and nothing that recurs."""
    channels = _divided(config.number("hidden_size"), serving, "channels", config)
    return State(channels * (config.number("conv_L_cache") - 1) * serving.dtype_bytes, 0)


def lightning(config: Config, serving: Serving) -> State:
    """The state of lightning attention (MiniMax): keys by values, for each head."""
    heads = _divided(config.heads, serving, "heads", config)
    return State(0, heads * config.head_size**2 * serving.dtype_bytes)


def _divided(number: int, serving: Serving, what: str, config: Config) -> int:
    if number % serving.workers:
        raise UsageError(
            f"--tensor-parallel-size {serving.workers} does not divide the {what} of {config.model_type}: {number}"
        )
    return number // serving.workers


def _element_bytes(config: Config, serving: Serving) -> int:
    configured = config.values.get("mamba_ssm_dtype") if config.model_type in _STATED_TYPES else None
    wide = config.model_type in _WIDE_TYPES or serving.release in WIDE_STATES
    return _ELEMENT_BYTES.get(str(configured), _ELEMENT_BYTES["float32"] if wide else serving.dtype_bytes)


def mode_of(serving: Serving, keeps_all: bool = False, attends: bool = True) -> StateMode:
    """Which states are kept: those that vLLM chooses for a model of which it ``keeps_all``, or cannot, and that
    ``attends`` as well, or does not.

    Raises:
        UsageError: all of them are asked for, and cannot be kept.
    """
    keeps_all = keeps_all and serving.described.keeps_all_states
    if serving.mamba_cache_mode == StateMode.ALL.value and not keeps_all:
        raise UsageError(
            "--mamba-cache-mode all: this vLLM cannot keep all states of this model; leave it out, or give align"
        )
    if not serving.caches(has_states=True, attends=attends):
        return StateMode.NONE
    chosen = StateMode.ALL if keeps_all and serving.release not in KEEPS_LAST_STATES else StateMode.ALIGN
    return StateMode(serving.mamba_cache_mode) if serving.mamba_cache_mode else chosen


def chunk_tokens(config: Config) -> int:
    """What a block with all states is a multiple of: what the kernels of the model compute at a time."""
    return config.optional("mamba_chunk_size") or config.optional("chunk_size") or _CHUNK_TOKENS


def block_tokens(state: State, token_bytes: int, key_bytes: int, serving: Serving, chunk: int = 1) -> int:
    """How many tokens a block of attention spans with such states.

    ``token_bytes`` is what attention keeps of a token, ``key_bytes`` its key alone. Where all states are kept, a block
    is a multiple of a ``chunk``.

    Raises:
        UsageError: vLLM-Ascend rejects the model, or a state or a token keeps nothing.
    """
    if token_bytes < 1 or state.bytes < 1:
        raise UsageError("a state of the model, or a token of its attention, keeps no bytes: a size is 0 in its file")
    if serving.platform is Platform.ASCEND:
        # There the recurrent part alone is laid over the keys, exactly.
        tokens = _rounded(-(-state.recurrent_bytes // key_bytes), _KERNEL_TOKENS_ASCEND)
        if tokens * key_bytes != state.recurrent_bytes:
            raise UsageError("vLLM-Ascend 0.20.2rc1 rejects this model: its states do not fill whole blocks of keys")
        return max(tokens, serving.block_size or 0)
    kernel = max(_KERNEL_TOKENS, serving.block_size or 0)
    return max(_rounded(-(-state.bytes // token_bytes), lcm(kernel, chunk)), serving.block_size or 0)


def _rounded(tokens: int, unit: int) -> int:
    return -(-tokens // unit) * unit
