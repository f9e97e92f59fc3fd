"""The tiny models: the layers and groups of published hybrid models, with a handful of weights.

Each is a configuration that Transformers knows, so that vLLM loads it as it loads the model that it stands for. Windows
are short, so that a prompt of some hundred tokens crosses them many times.

DeepSeek-V4 is not among them. vLLM 0.20.2's model of it makes CUDA streams when it is built, which fails without CUDA.
Before that, vLLM rejects its FP8 KV cache, because the CPU backend has none together with prefix caching.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attrs import frozen

VOCABULARY = 512
"""Token ids of every model."""
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
"""The first token ids; prompts are made of the others."""
BLOCK_SIZE_TOKENS = 16
POSITIONS_MAX = 4096
"""The longest request that a model takes, in tokens."""

_SHARED = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": POSITIONS_MAX,
    # A head of its own: tied to the embedding, a model of random weights repeats its last token without end.
    "tie_word_embeddings": False,
    "dtype": "float32",
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@frozen
class Hybrid:
    """A tiny model."""

    name: str
    sentence: str
    """What its layers are."""
    config: Mapping[str, Any]
    window_tokens: int
    block_sizes_tokens: tuple[int, ...]
    """Of its KV-cache groups, in vLLM's order."""
    blocks_short: tuple[int, int]
    """Blocks for the longest request of the table, and few more: without a draft model, and with one."""
    norms_around: float = 1.0
    """What a norm's weight is drawn around: some add one to it themselves."""
    scales: Mapping[str, float] = MappingProxyType({})
    """Other scales of embeddings, and other middles of norms, by a part of their names."""

    @property
    def has_larger_blocks(self) -> bool:
        """Whether full attention has larger blocks than the windows, so that a hit may end inside one."""
        return len(set(self.block_sizes_tokens)) > 1


GEMMA_3 = Hybrid(
    "gemma-3",
    "Gemma 3: two layers with a window to each of full attention, in three groups with blocks of one size",
    {
        **_SHARED,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
        "sliding_window": 32,
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "intermediate_size": 128,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
    },
    window_tokens=32,
    block_sizes_tokens=(16, 16, 16),
    blocks_short=(104, 104),
    scales=MappingProxyType({"embed": 0.1, "q_norm": 1.5, "k_norm": 1.5}),
    norms_around=0.0,
)
GPT_OSS = Hybrid(
    "gpt-oss",
    "gpt-oss: windows and full attention in turn, attention sinks, a mixture of experts",
    {
        **_SHARED,
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 32,
        "head_dim": 32,
        "intermediate_size": 64,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "attention_bias": True,
        "initial_context_length": POSITIONS_MAX // 4,
        "rope_theta": 150000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": POSITIONS_MAX // 4,
            "truncate": False,
        },
    },
    window_tokens=32,
    block_sizes_tokens=(16, 16),
    blocks_short=(84, 140),
)
GEMMA_4 = Hybrid(
    "gemma-4",
    "Gemma 4: two layers with a window and two of full attention, whose blocks are four times as large",
    {
        **_SHARED,
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 0,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "full_attention"],
        "sliding_window": 32,
        # Windows have four times the elements a token, so vLLM gives full attention four times the tokens a block.
        "head_dim": 128,
        "global_head_dim": 32,
        "intermediate_size": 128,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_parameters": {
            "full_attention": {"rope_theta": 1e6, "rope_type": "proportional", "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
        },
    },
    window_tokens=32,
    block_sizes_tokens=(16, 64),
    blocks_short=(42, 56),
)
HYBRIDS: Mapping[str, Hybrid] = MappingProxyType({each.name: each for each in (GEMMA_3, GPT_OSS, GEMMA_4)})
"""Every tiny model, by its name."""
