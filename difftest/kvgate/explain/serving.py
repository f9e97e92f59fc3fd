"""The serving flags, with vLLM's own names, and what they stand for where nothing is given.

Only the settings that decide about the prefix cache are here. No other flag of ``vllm serve`` changes the answer.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

from attrs import Attribute, field, frozen
from attrs.validators import and_, ge, instance_of, optional

from kvgate.adapters.releases import VLLM_VERSION, release_described
from kvgate.adapters.releases.description import Release
from kvgate.kernel.errors import UsageError
from kvgate.kernel.variants import Features
from kvgate.kernel.versions import Span, Version, version_of
from kvreference.geometry import Geometry
from kvreference.mamba import StateMode
from kvreference.retention import interval_of

RETENTION_VARIABLE = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
DENSE = "none"
"""What is written for a retention interval to have every block cached."""
_LOOKING_AHEAD = ("eagle", "mtp", "dflash", "dspark", "extract_hidden_states")
"""What the names of the methods contain whose draft layers read the cache, and so ask for a look-ahead block."""
_LEGACY_HASHES = "disable_lookahead_block_hashes"
"""What a speculative config has, as vLLM names it, for hits to match a look-ahead block in every release."""
_NUMBER_MAX = 2**40
BATCHED_TOKENS = 8192
"""``--max-num-batched-tokens`` where none is given: vLLM's depends on the device."""
_WIDE = ("float16", "bfloat16", "auto")
_FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla")
KV_CACHE_TYPES = (*_WIDE, *_FP8)
"""What an element of the cache may be, of those whose blocks are known here."""
_NAMED_METHODS = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash"}
"""The methods that vLLM infers from the name of a draft model."""
MASKS = Span("0.22.0")
"""Since vllm-project/vllm#42258 blocks that no hit can read are left out of the cache."""
RETAINS = Span("0.23.0")
"""Since vllm-project/vllm#43447 there is a retention interval."""
RETAINS_LEAST = Span("0.29.0")
"""Since vllm-project/vllm#52216 the interval is 0 unless another is given."""
RETAINS_ALL_DRAFTED = Span("0.29.0", "0.30.0")
"""With vllm-project/vllm#55760 it is none where states are kept and draft layers look ahead; in 0.30.0 and 0.33.0 it is
0 there too."""
KEEPS_JUNCTIONS = Span("0.27.1")
"""From here on the boundary at which a prompt parts from what is cached is kept, as with the plug-in for 0.20.2."""
NOT_ASKED = Span("0.28.0", "0.30.0")
"""Releases that were not asked for their groups: what 0.27.1 does not do, and 0.30.0 does, is taken to begin here."""
CACHES_HYBRIDS = Span(NOT_ASKED.first)
"""Since vllm-project/vllm#50991 prefix caching is on by default for models with state-space layers next to attention
too. Like the next three it is seen in 0.30.0, and not in 0.27.1."""
KEEPS_LAST_STATES = Span(NOT_ASKED.first)
"""With the same change states are kept at block ends alone, unless all of them are asked for."""
SEES_ONE_MORE = Span(NOT_ASKED.first)
"""From here on a window of Cohere's models has a token more than its file says."""
WIDE_STATES = Span(NOT_ASKED.first)
"""From here on an element of a recurrent state has four bytes unless the model says otherwise."""
PADS_LESS, PADDED_LESS_BELOW = Span("0.0.0", "0.18.0"), 1.25
"""Before 0.18, a kind of layers was padded up to another ratio; see ``layers.PADDED_BELOW``."""


class Platform(str, Enum):
    """Whose block sizes and groups there are."""

    GPU = "gpu"
    ASCEND = "ascend"


_number = optional(and_(instance_of(int), ge(1)))


@frozen
class Speculation:
    """``--speculative-config``, as far as the cache is concerned."""

    method: str
    drafts: int = field(default=1, validator=[instance_of(int), ge(1)])
    inferred: bool = False
    """Whether the method was not given, but taken from the draft model's name."""
    hashes_ahead: bool = True
    """Whether hashes may cover the token after a block, in a release that has such hashes."""

    @property
    def looks_ahead(self) -> bool:
        """Whether draft layers read the cache: a hit must then match a block more than it serves."""
        return any(word in self.method for word in _LOOKING_AHEAD)


@frozen
class Serving:
    """What a server is started with.

    Raises:
        UsageError: a number is malformed, or the version is unknown.
    """

    platform: Platform = field(default=Platform.GPU, converter=Platform)
    version: str = field(default=VLLM_VERSION, validator=instance_of(str))
    """Of vLLM, or of vLLM-Ascend on that platform."""
    block_size: int | None = field(default=None, validator=_number)
    speculation: Speculation | None = None
    retention: str | None = field(default=None, validator=optional(instance_of(str)))
    """The retention interval as it was written; None if nothing was."""
    num_gpu_blocks_override: int | None = field(default=None, validator=_number)
    kv_cache_memory_bytes: int | None = field(default=None, validator=_number)
    max_model_len: int | None = field(default=None, validator=_number)
    max_num_batched_tokens: int | None = field(default=None, validator=_number)
    max_num_seqs: int = field(default=256, validator=[instance_of(int), ge(1)])
    long_prefill_token_threshold: int = field(default=0, validator=[instance_of(int), ge(0)])
    enable_prefix_caching: bool | None = field(default=None, validator=optional(instance_of(bool)))
    """None: vLLM's default for the model."""
    mamba_cache_mode: str | None = field(default=None, validator=optional(instance_of(str)))
    """Which states are kept; None: vLLM's choice for the model."""
    disable_hybrid_kv_cache_manager: bool = field(default=False, validator=instance_of(bool))
    tensor_parallel_size: int | None = field(default=None, validator=_number)
    dtype_bytes: int = field(default=2, validator=[instance_of(int), ge(1)])
    """How many bytes an element of the model has: two for bfloat16 and float16."""
    kv_cache_dtype: str | None = field(default=None, validator=optional(instance_of(str)))

    @version.validator
    def _is_version(self, _attribute: Attribute[str], version: str) -> None:
        release_described(version, self.platform is Platform.ASCEND)

    @kv_cache_dtype.validator
    def _is_type(self, _attribute: Attribute[str | None], name: str | None) -> None:
        if name is not None and name not in KV_CACHE_TYPES:
            raise UsageError(
                f"--kv-cache-dtype {name!r:.80}: it is one of {', '.join(KV_CACHE_TYPES)} here; for another "
                "of vLLM's give a dump of the KVCacheConfig, and leave the flag out"
            )

    @mamba_cache_mode.validator
    def _is_mode(self, _attribute: Attribute[str | None], mode: str | None) -> None:
        modes = [each.value for each in StateMode]
        if mode is not None and mode not in modes:
            raise UsageError(f"--mamba-cache-mode {mode!r:.80}: it is one of {', '.join(modes)}")

    @property
    def workers(self) -> int:
        """Over how many workers heads are divided."""
        return self.tensor_parallel_size or 1

    @property
    def batched_tokens(self) -> int:
        """The most tokens that a step computes."""
        return self.max_num_batched_tokens or BATCHED_TOKENS

    @property
    def release(self) -> Version:
        """The version, to be compared."""
        return version_of(self.version)

    @property
    def engine(self) -> str:
        """What is served with, by name and version."""
        return f"vLLM{'-Ascend' if self.platform is Platform.ASCEND else ''} {self.version}"

    @property
    def described(self) -> Release:
        """The description of the release, or of the one that stands for it."""
        return release_described(self.version, self.platform is Platform.ASCEND)

    @property
    def looks_ahead(self) -> bool:
        """Whether hits must match a look-ahead block."""
        return self.speculation is not None and self.speculation.looks_ahead

    @property
    def hashes_ahead(self) -> bool:
        """Whether draft layers make hashes cover the token after a block, and hits need no look-ahead block."""
        return self.speculation is not None and self.speculation.hashes_ahead and self.described.hashes_ahead

    @property
    def drafts(self) -> int:
        """How many tokens are drafted at most."""
        return self.speculation.drafts if self.speculation else 0

    @property
    def cache_element_bytes(self) -> int:
        """How many bytes an element of the cache has."""
        return 1 if self.kv_cache_dtype in _FP8 else self.dtype_bytes

    @property
    def chunk_tokens(self) -> int:
        """The most tokens of one request that a step computes."""
        limit = self.long_prefill_token_threshold
        return min(self.batched_tokens, limit) if limit else self.batched_tokens

    @property
    def on_stock(self) -> bool:
        """Whether the plug-in alone could retain anything."""
        return self.release not in RETAINS

    @property
    def keeps_junctions(self) -> bool:
        """Whether the boundary is kept at which a prompt parts from what is cached: with the plug-in, too."""
        return self.on_stock or (self.release in KEEPS_JUNCTIONS and not self.ignores_intervals)

    @property
    def ignores_intervals(self) -> bool:
        """Whether nothing sets a retention interval, although vLLM of this version has one: its description says so."""
        return not self.on_stock and self.described.interval is None

    def retains(self, geometry: Geometry) -> bool:
        """Whether a retention interval leaves anything out: of windows, and in later releases of states."""
        return any(group.is_sparse and (group.slides or self.described.retains_states) for group in geometry.groups)

    def caches(self, has_states: bool, attends: bool = True) -> bool:
        """Whether prefix caching is on for a model that keeps states, or ``attends``, or both."""
        if has_states and self.mamba_cache_mode == StateMode.NONE.value:
            return False
        if self.enable_prefix_caching is not None:
            return self.enable_prefix_caching
        return not has_states or (attends and self.release in CACHES_HYBRIDS)

    def interval_tokens(self, alignment_tokens: int, has_states: bool) -> int | None:
        """The retention interval in effect; None where every block is cached.

        Leaving out what no hit can read is an interval of one alignment.

        Raises:
            UsageError: the text is not an interval.
        """
        if self.retention is not None:
            try:
                interval = None if self.retention.strip().lower() == DENSE else interval_of(self.retention)
            except ValueError as error:
                raise UsageError(f"--prefix-cache-retention-interval: {error}, and {DENSE} for none") from error
            if not self.ignores_intervals:
                return interval
        if self.release in RETAINS_LEAST and not self.ignores_intervals:
            return None if has_states and self.looks_ahead and self.release in RETAINS_ALL_DRAFTED else 0
        return alignment_tokens if self.release in MASKS else None

    def features(self, geometry: Geometry) -> Features:
        """What stays in the cache of a model with these groups, and in which order it is used again.

        Raises:
            UsageError: the retention interval is malformed, or not possible for this model.
        """
        alignment = geometry.alignment_tokens
        interval = self.interval_tokens(alignment, geometry.keeps_states) if self.retains(geometry) else None
        if interval is not None and interval % alignment:
            raise UsageError(
                f"--prefix-cache-retention-interval {interval}: it must be a multiple of the model's alignment, "
                f"{alignment} tokens"
            )
        masked = interval is not None and interval == alignment
        return Features(
            masked=masked,
            retention_interval_tokens=None if masked else interval,
            scratch_first=self.described.choices is not None,
            keeps_junctions=not masked and interval is not None and self.described.pins_junctions,
        )


def speculation_of(text: str | None, mtp: int | None = None) -> Speculation | None:
    """What ``--speculative-config`` says, as vLLM takes it: a JSON object; or ``--mtp N`` for short.

    Raises:
        UsageError: it is not such an object, or both are given.
    """
    if text is None:
        return None if mtp is None else Speculation("mtp", mtp)
    if mtp is not None:
        raise UsageError("--mtp is short for --speculative-config: give one of them")
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--speculative-config is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError('--speculative-config must be an object, like {"method": "mtp", "num_speculative_tokens": 1}')
    method, model = document.get("method"), document.get("model")
    inferred = method is None and isinstance(model, str)
    if inferred:
        method = _inferred(str(model))
    drafts = document.get("num_speculative_tokens", 1)
    if not isinstance(method, str) or type(drafts) is not int or not 1 <= drafts <= _NUMBER_MAX:
        raise UsageError('--speculative-config needs a "method", and "num_speculative_tokens" of at least 1')
    legacy = document.get(_LEGACY_HASHES, False)
    if type(legacy) is not bool:
        raise UsageError(f'--speculative-config: "{_LEGACY_HASHES}" is true or false')
    return Speculation(method, drafts, inferred, not legacy)


def _inferred(model: str) -> str:
    """The method that vLLM takes where none is given: by the draft model's name, or a model that drafts on its own."""
    named = (method for part, method in _NAMED_METHODS.items() if part in model.lower())
    return next(named, "ngram" if model in ("ngram", "[ngram]") else "draft_model")
