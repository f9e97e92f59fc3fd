"""vLLM 0.20.2 with the plug-in, in lockstep with the reference.

Goal: what is switched on does what the reference says, on every mechanism that the plug-in has, with drafts and with
transfers; and with nothing switched on, the plug-in's patches in place make no difference. Method: lockstep over drawn
cases, in which nothing may differ that is not declared; and the plug-in broken, one thing at a time, which must differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kvgate.campaign import Lane, draw_case
from kvgate.declared import explain
from kvgate.generators import PRESETS, Generator
from kvgate.models import load
from kvgate.runner import Bench, run
from kvgate.systems import load_system
from swa_retention.patches.free_queue import prepend_n
from swa_retention.pinned_tier import PinnedTier
from swa_retention.reachable import Reach
from swa_retention.register import MARK

make_room = PinnedTier.make_room

pytest.importorskip("vllm")

AGREED = (
    "mixed-blocks+masked+scratch",
    "mixed-blocks+mtp+masked+scratch+transfers",
    "mixed-blocks+eagle+retention=2+scratch",
    "gpt-oss-hybrid+retention+scratch",
    "gemma-hybrid+pinned=2",
    "mixed-blocks+eagle+pinned=1+retention=1+scratch",
    "mixed-blocks+pinned=2+transfers",
    "full",
    "gpt-oss-hybrid+mtp",
)
"""Models on which nothing differs that is not declared; the last ones have nothing switched on."""
OPERATIONS = 1500


def differences(model: str, operations: int = OPERATIONS, until: str = "") -> Counter[str]:
    """What differs in drawn cases, by statement; what is declared apart.

    Until so many operations were performed, or ``until`` was seen.
    """
    bench, found, performed, index = Bench(load_system("retention").factory), Counter[str](), 0, 0
    while performed < operations and f"undeclared {until}" not in found:
        lane = Lane(load(model), ("tiny", "hostile", "long")[index % 3])
        generator = Generator(PRESETS[lane.preset], lane.model.geometry, lane.model.features)
        case = draw_case(generator, lane, f"retention/{index}", 0)
        lockstep, divergences = run(bench, case.settings, case.operations)
        for divergence in divergences:
            found[explain(divergence, lockstep) or f"undeclared {divergence.difference.statement}"] += 1
        performed, index = performed + len(lockstep.performed), index + 1
    return found


def undeclared(found: Counter[str]) -> set[str]:
    """The statements of what nothing explains."""
    return {name.removeprefix("undeclared ") for name in found if name.startswith("undeclared")}


@pytest.mark.parametrize("model", AGREED)
def test_it_agrees(model: str) -> None:
    """Nothing that is not declared of vLLM itself."""
    assert set() == undeclared(differences(model))


def one_less(method: Callable[..., Any]) -> Callable[..., Any]:
    """What ``method`` says, less one."""

    def less(*arguments: Any) -> Any:
        said = method(*arguments)
        return said if said is None else max(0, said - 1)

    return less


def reads_without_lookahead(self: Reach, boundary_tokens: int, index: int) -> bool:
    """The mask does not know the look-ahead block."""
    first = self.skipped(boundary_tokens) // self.block_size_tokens
    return boundary_tokens > 0 and first <= index < boundary_tokens // self.block_size_tokens


def prepends_backwards(self: Any, blocks: list[Any]) -> None:
    """The last of the blocks is handed out first."""
    prepend_n(self, blocks[::-1])


# As every replacement, it says what it replaced: nothing.
setattr(prepends_backwards, MARK, None)


def pins_scratch(self: PinnedTier, blocks: Any) -> None:
    """What is not cached is pinned too."""
    for block in blocks:
        self.pinned[block.block_id] = not block.is_null


def keeps_the_pin(self: PinnedTier, block: Any) -> None:
    """A block whose content is forgotten stays pinned."""


def demotes_the_newest(self: PinnedTier, count: int, kept: Any) -> None:
    """The newest go first."""
    lacking = count - self.pool.free_block_queue.num_free_blocks
    waiting = [block for block in self.queue.get_all_free_blocks() if block.block_id not in kept]
    if 0 < lacking <= len(waiting):
        for block in waiting[-lacking:]:
            self.unpin(block)


def demotes_what_is_about_to_be_held(self: PinnedTier, count: int, _kept: Any) -> None:
    """Whoever asks loses the pins of its own hit."""
    make_room(self, count, ())


MASKED, PINNED, BOTH = (
    "mixed-blocks+mtp+masked+scratch",
    "mixed-blocks+pinned=1",
    "mixed-blocks+eagle+pinned=1+retention=1+scratch",
)
BROKEN: dict[str, tuple[str, str, Any, str]] = {
    "due too soon": ("swa_retention.reachable.Reach.due_tokens", MASKED, one_less(Reach.due_tokens), "KV-OP-15"),
    "mask without look-ahead": ("swa_retention.reachable.Reach._reads", MASKED, reads_without_lookahead, "KV-OP-15"),
    "everything is read": ("swa_retention.reachable.Reach._reads", MASKED, lambda *_all: True, "KV-OP-15"),
    "no replay boundary": (
        "swa_retention.patches.attach.replay_boundary_tokens",
        "gpt-oss-hybrid+retention+scratch",
        lambda *_tokens, **_more: 0,
        "KV-OP-15",
    ),
    "prepended backwards": (
        "vllm.v1.core.kv_cache_utils.FreeKVCacheBlockQueue.prepend_n",
        MASKED,
        prepends_backwards,
        "KV-OP-17",
    ),
    "scratch pinned": ("swa_retention.pinned_tier.PinnedTier.pin", PINNED, pins_scratch, "KV-OP-21"),
    "nothing pinned": ("swa_retention.pinned_tier.PinnedTier.pin", PINNED, lambda *_all: None, "KV-OP-21"),
    "pin outlives content": ("swa_retention.pinned_tier.PinnedTier.forget", BOTH, keeps_the_pin, "KV-OP-22"),
    "newest demoted": ("swa_retention.pinned_tier.PinnedTier.make_room", PINNED, demotes_the_newest, "KV-OP-23"),
    "own hit demoted": (
        "swa_retention.pinned_tier.PinnedTier.make_room",
        PINNED,
        demotes_what_is_about_to_be_held,
        "KV-OP-23",
    ),
    "never demoted": ("swa_retention.pinned_tier.PinnedTier.make_room", PINNED, lambda *_all: None, "KV-OP-03"),
}
"""What is broken, where, on which model, how, and one of the guarantees that are then violated."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plug_in_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guarantee that the break violates is among those that are told."""
    target, model, by, statement = BROKEN[name]
    load_system("retention")
    monkeypatch.setattr(target, by)
    assert statement in undeclared(differences(model, 6 * OPERATIONS, until=statement))
