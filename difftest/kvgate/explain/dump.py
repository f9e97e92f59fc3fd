"""A dump of vLLM's KVCacheConfig: the groups that a running engine has, as a document.

    {"format": "kvgate-kv-cache-config", "version": 1, "vllm": "0.20.2", "num_blocks": 4000, "block_bytes": 524288,
     "groups": [{"kind": "full", "block_size_tokens": 16, "layers": 8},
                {"kind": "sliding_window", "block_size_tokens": 16, "layers": 8, "window_tokens": 1024}]}

``num_blocks`` and ``block_bytes`` may be missing. A group may have ``compress_ratio``, ``states`` (of a state-space
group: none, all or align), ``draft_states``, ``lookahead`` (a draft layer's group is flagged) and ``label``.
``kvgate.adapters.kv_cache_dump`` writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from attrs import evolve, field, frozen
from attrs.validators import and_, ge, instance_of, le, optional

from kvgate.adapters.kv_cache_dump import FORMAT, FORMAT_VERSION
from kvgate.explain.layers import Placed
from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, strict_converter
from kvreference.attention import Kind
from kvreference.geometry import Group

GROUPS_MAX = 256
_NUMBER_MAX = 2**48

SNIPPET = """\
# Run where the model is served; no request is needed, and the weights need not be real (load_format="dummy").
import os
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # so that the scheduler is in this process

from vllm import LLM
from kvgate.adapters.kv_cache_dump import write

if __name__ == "__main__":
    llm = LLM("MODEL", load_format="dummy")  # and the flags that you serve with
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    write(scheduler.kv_cache_config, "kv-cache-config.json")  # then: kvgate explain kv-cache-config.json
"""
"""What writes a dump."""


def _number(least: int) -> Any:
    return and_(instance_of(int), ge(least), le(_NUMBER_MAX))


@frozen
class GroupDump:
    """One group."""

    kind: str
    block_size_tokens: int = field(validator=_number(1))
    layers: int = field(default=1, validator=_number(1))
    window_tokens: int | None = field(default=None, validator=optional(_number(2)))
    compress_ratio: int = field(default=1, validator=_number(1))
    states: str | None = None
    draft_states: int = field(default=0, validator=_number(0))
    lookahead: bool = False
    label: str = ""


@frozen
class Dump:
    """The document."""

    format: Literal["kvgate-kv-cache-config"]
    version: int
    groups: list[GroupDump]
    vllm: str | None = None
    num_blocks: int | None = field(default=None, validator=optional(_number(2)))
    block_bytes: int | None = field(default=None, validator=optional(_number(1)))

    def placed(self) -> tuple[Placed, ...]:
        """The groups as the reference knows them.

        Raises:
            ValueError: the reference knows no such group.
        """
        return tuple(
            Placed(
                Group(
                    Kind(each.kind),
                    each.block_size_tokens,
                    each.window_tokens,
                    each.lookahead,
                    each.compress_ratio,
                    states=each.states,
                    draft_states=each.draft_states,
                ),
                each.layers,
                each.label,
            )
            for each in self.groups
        )


def is_dump(document: object) -> bool:
    """Whether a document says that it is one."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def of(document: object, path: Path) -> Dump:
    """The dump in a document.

    Raises:
        UsageError: it is not a dump, or of another version.
    """
    if isinstance(document, dict) and document.get("version") != FORMAT_VERSION:
        raise UsageError(
            f"{path}: a dump of version {document.get('version')!r:.40}, and this kvgate reads {FORMAT_VERSION}: "
            "write it again with this one"
        )
    try:
        dump: Dump = strict_converter().structure(document, Dump)
        if not 1 <= len(dump.groups) <= GROUPS_MAX:
            raise ValueError(f"a dump has 1 to {GROUPS_MAX} groups, got {len(dump.groups)}")
        dump.placed()
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{path}: {explain(error)}") from error
    return dump


def with_drafts(groups: tuple[Placed, ...], looks_ahead: bool) -> tuple[Placed, ...]:
    """``groups`` with the look-ahead as vLLM has it: where no group is flagged, all are but those of states."""
    if not looks_ahead:
        return tuple(evolve(placed, group=evolve(placed.group, lookahead=False)) for placed in groups)
    if any(placed.group.lookahead for placed in groups):
        return groups
    return tuple(
        evolve(placed, group=evolve(placed.group, lookahead=not placed.group.keeps_states)) for placed in groups
    )
