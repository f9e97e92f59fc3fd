"""The models that vLLM's own tests name: their published configurations, as far as a block manager or a scheduler asks.

Numbers alone, no weights: layers, heads, positions, vocabulary, and how many tokens a picture takes.
"""

from __future__ import annotations

from typing import Any

from attrs import Factory, frozen


@frozen
class Model:
    """A model that a test names, without its weights."""

    name: str
    """As on the hub, ``owner/name``."""
    files: dict[str, dict[str, Any]]
    """The files next to the weights, by name."""
    tokens: dict[str, int]
    """The tokens that must be known, with their numbers."""
    eos: str
    tokenizer: dict[str, Any] = Factory(dict)
    """Further settings of its tokenizer."""


def _text(architecture: str, model_type: str, **more: Any) -> dict[str, Any]:
    return {"architectures": [architecture], "model_type": model_type, "torch_dtype": "float16", **more}


OPT = Model(
    "facebook/opt-125m",
    {
        "config.json": _text(
            "OPTForCausalLM",
            "opt",
            **{"hidden_size": 768, "word_embed_proj_dim": 768, "ffn_dim": 3072, "num_hidden_layers": 12},
            **{"num_attention_heads": 12, "max_position_embeddings": 2048, "vocab_size": 50272},
            **{"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1},
        )
    },
    {"<pad>": 1, "</s>": 2},
    "</s>",
)
QWEN_1_5 = Model(
    "Qwen/Qwen1.5-7B",
    {
        "config.json": _text(
            "Qwen2ForCausalLM",
            "qwen2",
            **{"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
            **{"num_key_value_heads": 32, "max_position_embeddings": 32768, "vocab_size": 151936},
            **{"bos_token_id": 151643, "eos_token_id": 151643, "use_sliding_window": False},
        )
    },
    {"<|endoftext|>": 151643},
    "<|endoftext|>",
)
QWEN_3 = Model(
    "Qwen/Qwen3-0.6B",
    {
        "config.json": _text(
            "Qwen3ForCausalLM",
            "qwen3",
            **{"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
            **{"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, "vocab_size": 151936},
            **{"bos_token_id": 151643, "eos_token_id": 151645, "use_sliding_window": False},
        )
    },
    {"<|endoftext|>": 151643, "<|im_end|>": 151645},
    "<|im_end|>",
)
_CLIP = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 336},
    "crop_size": {"height": 336, "width": 336},
}
LLAVA = Model(
    "llava-hf/llava-1.5-7b-hf",
    {
        "config.json": _text(
            "LlavaForConditionalGeneration",
            "llava",
            **{"image_token_index": 32000, "projector_hidden_act": "gelu", "vocab_size": 32064},
            **{"vision_feature_layer": -2, "vision_feature_select_strategy": "default"},
            text_config=_text(
                "LlamaForCausalLM",
                "llama",
                **{"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32},
                **{"num_attention_heads": 32, "max_position_embeddings": 4096, "vocab_size": 32064},
            ),
            vision_config={
                **{"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14, "projection_dim": 768},
                **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
            },
        ),
        "preprocessor_config.json": {"processor_class": "LlavaProcessor", **_CLIP},
        "processor_config.json": {
            **{"processor_class": "LlavaProcessor", "image_token": "<image>", "patch_size": 14},
            **{"vision_feature_select_strategy": "default", "num_additional_image_tokens": 1},
        },
    },
    {"<unk>": 0, "<s>": 1, "</s>": 2, "<image>": 32000, "<pad>": 32001},
    "</s>",
    {"processor_class": "LlavaProcessor", "pad_token": "<pad>", "image_token": "<image>"},
)
_QWEN_TOKENS = {
    **{"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645},
    **{"<|vision_start|>": 151652, "<|vision_end|>": 151653},
    **{"<|vision_pad|>": 151654, "<|image_pad|>": 151655, "<|video_pad|>": 151656},
}
_QWEN_PICTURES = {
    **{"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2},
    **{"size": {"shortest_edge": 3136, "longest_edge": 12845056}},
}
QWEN_2_5_VL = Model(
    "Qwen/Qwen2.5-VL-3B-Instruct",
    {
        "config.json": _text(
            "Qwen2_5_VLForConditionalGeneration",
            "qwen2_5_vl",
            **{"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16},
            **{"num_key_value_heads": 2, "max_position_embeddings": 128000, "vocab_size": 151936},
            **{"bos_token_id": 151643, "eos_token_id": 151645, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0},
            **{"vision_start_token_id": 151652, "vision_end_token_id": 151653, "vision_token_id": 151654},
            **{"image_token_id": 151655, "video_token_id": 151656, "use_sliding_window": False},
            rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]},
            vision_config={
                **{"model_type": "qwen2_5_vl", "depth": 32, "hidden_size": 1280, "intermediate_size": 3420},
                **{"num_heads": 16, "in_chans": 3, "out_hidden_size": 2048, "patch_size": 14, "window_size": 112},
                **{"spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2, "tokens_per_second": 2},
                **{"fullatt_block_indexes": [7, 15, 23, 31]},
            },
        ),
        "preprocessor_config.json": {
            **{"processor_class": "Qwen2_5_VLProcessor", "image_processor_type": "Qwen2VLImageProcessor"},
            **_QWEN_PICTURES,
        },
        "video_preprocessor_config.json": {"video_processor_type": "Qwen2VLVideoProcessor", **_QWEN_PICTURES},
    },
    _QWEN_TOKENS,
    "<|im_end|>",
    {"processor_class": "Qwen2_5_VLProcessor", "pad_token": "<|endoftext|>"},
)
MODELS = (OPT, QWEN_1_5, QWEN_3, LLAVA, QWEN_2_5_VL)
