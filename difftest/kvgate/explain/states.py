"""State-space layers: how large a state is, and how large that makes the blocks of attention.

A state takes as many bytes whatever its block spans. So attention's blocks are made at least as large as a state, and
the state is padded to them: for a model with large states a block spans hundreds of tokens, and so does every hit.
"""

from __future__ import annotations

from attrs import frozen

from kvgate.explain.config_file import Config
from kvgate.explain.serving import Platform, Serving
from kvgate.kernel.errors import UsageError
from kvreference.mamba import StateMode

_KERNEL_TOKENS = 16
"""What attention's kernels on a GPU want blocks to be a multiple of."""
_KERNEL_TOKENS_ASCEND = 128
_SSM_TYPES = ("qwen3_5_text", "qwen3_5_moe_text")
"""Whose configuration says itself how large an element of a state is."""
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


def _element_bytes(config: Config, serving: Serving) -> int:
    configured = config.values.get("mamba_ssm_dtype") if config.model_type in _SSM_TYPES else None
    return _ELEMENT_BYTES.get(str(configured), serving.dtype_bytes)


def mode_of(serving: Serving) -> StateMode:
    """Which states are kept: those that vLLM chooses for a model that cannot keep all of them.

    Raises:
        UsageError: all of them are asked for.
    """
    if serving.mamba_cache_mode == StateMode.ALL.value:
        raise UsageError(
            "--mamba-cache-mode all: vLLM cannot keep all states of this model; leave it out, or give align"
        )
    if not serving.caches(has_states=True):
        return StateMode.NONE
    return StateMode.ALIGN


def block_tokens(state: State, token_bytes: int, key_bytes: int, serving: Serving) -> int:
    """How many tokens a block of attention spans with such states.

    ``token_bytes`` is what attention keeps of a token, ``key_bytes`` its key alone.

    Raises:
        UsageError: vLLM-Ascend refuses the model.
    """
    if serving.platform is Platform.ASCEND:
        # There the recurrent part alone is laid over the keys, exactly.
        tokens = _rounded(-(-state.recurrent_bytes // key_bytes), _KERNEL_TOKENS_ASCEND)
        if tokens * key_bytes != state.recurrent_bytes:
            raise UsageError("vLLM-Ascend 0.20.2rc1 refuses this model: its states do not fill whole blocks of keys")
        return max(tokens, serving.block_size or 0)
    kernel = max(_KERNEL_TOKENS, serving.block_size or 0)
    return max(_rounded(-(-state.bytes // token_bytes), kernel), serving.block_size or 0)


def _rounded(tokens: int, unit: int) -> int:
    return -(-tokens // unit) * unit
