"""A program: vLLM 0.33.0's own scheduler with pins, where blocks must stay free or are freed later. It prints JSON.

It is started in a process of its own, for a process has one vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kvgate.adapters.registry import load_system
from kvgate.findings import explain
from kvgate.levels.scheduler.operations import Serve, Stage
from kvreference.geometry import Geometry, Group
from kvreference.operations import Abort, Arrive, Run
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

SYSTEM = "retention@0.33.0"
FACTORY: list[Callable[[Settings], Any]] = []
"""The factory of the system, once it is loaded."""
GEOMETRY = Geometry((Group("full", 16), Group("sliding_window", 16, 32)))


def settings(blocks: int) -> Settings:
    """Pins, for any drop of a window."""
    return Settings(GEOMETRY, blocks=blocks, tokens_max=256, chunk_tokens=64, pin_drop_blocks_min=1, scratch_first=True)


def serve(number: int, tokens: int, family: int) -> Serve:
    """A request whose prompt begins as those of its family."""
    return Serve(Arrive(number, (Run(family * 1000, tokens),)), 4)


def perform(made: Any, *operations: Any) -> list[str]:
    """The undeclared findings meanwhile."""
    found = [made.perform(operation) for operation in operations]
    return [each.difference.statement for each in found if each and explain(each, made.lockstep) is None]


def deferred_frees() -> Mapping[str, Any]:
    """A request is aborted while two steps write its blocks; another one hits them before they are freed."""
    from kvgate.levels.scheduler.engine import Engine

    made: Any = Engine(settings(40), Stage(asynchronous=True, connector=True), SYSTEM, with_reference=False)
    scheduler, step = made.scheduler, Step((Reply(token=500_000),))
    tier = scheduler.kv_cache_manager.block_pool.pinned_tier
    wrong = perform(made, serve(0, 60, family=0), step, Abort(0))
    blocks = [block for _fence, each in scheduler.deferred_frees for block in each]
    states = [[tier.holds(block), block.ref_cnt] for block in blocks]
    waiting = tier.queue.num_free_blocks
    wrong += perform(made, serve(1, 60, family=0), step)
    hit = [block.ref_cnt for block in blocks]
    wrong += perform(made, step, step, step)
    after = [block.ref_cnt for block in blocks if tier.holds(block)]
    wrong += [each.difference.statement for each in made.close() if explain(each, made.lockstep) is None]
    return {
        "deferred": states,
        "waiting": waiting,
        "hit": hit,
        "after": after,
        "left": len(scheduler.deferred_frees),
        "at the end": [block.ref_cnt for block in blocks if tier.holds(block)],
        "in the tier": tier.queue.num_free_blocks,
        "wrong": wrong,
    }


def kept_free() -> Mapping[str, Any]:
    """The blocks that a request has demoted: as many as are missing, and with others that run as the watermark says.

    One that runs asks for no watermark. The gate for all of a request leaves nothing for others that load.
    """
    return {name: _demoted(**asked) for name, asked in ASKED.items()}


ASKED: Mapping[str, Mapping[str, Any]] = {
    "alone": {"has_scheduled_reqs": False},
    "with others": {},
    "others load": {"reserved_blocks": 3},
    "others load too much": {"reserved_blocks": 30},
    "the whole fits": {"reserved_blocks": 30, "full_sequence_must_fit": True},
    "running": {"is_running": True},
}


def _demoted(is_running: bool = False, **asked: Any) -> list[Any]:
    """How many of 23 pinned blocks are demoted for a prompt of 60 tokens if no block is free; whether it is granted."""
    from vllm.v1.request import RequestStatus

    manager = FACTORY[0](settings(24)).manager
    pool, tier = manager.block_pool, manager.block_pool.pinned_tier
    manager.watermark_blocks = 4
    for block in pool.get_new_blocks(pool.get_num_free_blocks()):
        tier.pinned[block.block_id] = True
        pool.free_blocks([block])
    request = _request(60)
    request.status = RequestStatus.RUNNING if is_running else RequestStatus.WAITING
    granted = manager.allocate_slots(request, 32, **asked)
    return [tier.demoted, granted is not None]


def _request(tokens: int) -> Any:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    return Request("a", list(range(tokens)), SamplingParams(max_tokens=1), None)


if __name__ == "__main__":
    FACTORY.append(load_system(SYSTEM).factory)
    programs: tuple[Callable[[], Mapping[str, Any]], ...] = (deferred_frees, kept_free)
    print(json.dumps({program.__name__: program() for program in programs}))
