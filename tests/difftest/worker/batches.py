"""Random batches for the worker of vLLM-Ascend with the plug-in: ``python -m tests.difftest.worker.batches 64 99``.

No scheduler decides what is in a batch, so what a scheduler seldom does comes as often as anything else: rows that are
condensed, requests that pause, come back with other blocks, reject drafts, and begin inside a block. Prints how many
slots, table entries and copies were compared.
"""

from __future__ import annotations

import sys
from random import Random
from typing import TYPE_CHECKING, Any

from attrs import Factory, define

from kvgate.adapters.registry import load_system
from kvgate.kernel.models import load
from kvgate.levels.scheduler.adapter.subjects import SUBJECTS
from kvgate.levels.scheduler.operations import Stage
from kvgate.levels.worker.engine import WORKERS
from kvgate.levels.worker.memory import layout_in
from kvgate.levels.worker.slot_check import Granted, and_left, check, check_copies, check_memory, check_metadata
from kvreference.answers import Copy
from kvreference.block_pool import NULL
from kvreference.settings import Settings

if TYPE_CHECKING:
    from kvreference.geometry import Group

DRAFTS, ROWS, CHUNK_TOKENS, BLOCKS = 3, 6, 512, 3000
BLOCKS_OF_C128 = 2.2
"""How many of the largest blocks a request may fill."""


@define
class Alive:
    """A request: what is computed, its blocks by group, and whether the worker has them."""

    computed: int
    tables: list[list[int]]
    is_new: bool = True
    resumes: bool = False
    drafts: list[int] = Factory(list)
    left: list[list[int]] = Factory(list)
    """Its blocks, and those that the window has left."""


@define
class Batches:
    """Requests that come and go, and the outputs that a scheduler would send of them."""

    settings: Settings
    draw: Random
    alive: dict[str, Alive] = Factory(dict)
    free: list[int] = Factory(list)
    came: int = 0

    def __attrs_post_init__(self) -> None:
        self.free = list(range(1, self.settings.blocks))
        self.draw.shuffle(self.free)

    def next(self) -> tuple[Any, dict[str, Granted], tuple[Copy, ...]]:
        """A step's output, what it grants, and its copies."""
        from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

        from swa_retention.partial.copies import BlockCopy
        from swa_retention.patches.dispatch import CARRIED

        draw, copies = self.draw, list[Copy]()
        over = {name for name in self.alive if draw.random() < 0.1 or self._is_long(self.alive[name])}
        for name in over:
            self._release(self.alive.pop(name))
        lost = {name for name, each in self.alive.items() if not each.is_new and draw.random() < 0.06}
        for name in lost:
            self._release(self.alive[name])
            self.alive[name].resumes = True
        while len(self.alive) < ROWS and draw.random() < 0.5:
            self.came += 1
            self.alive[f"r{self.came}"] = Alive(0, [])
        granted, new, known = dict[str, Granted](), list[Any](), CachedRequestData.make_empty()
        counts, drafted, room = dict[str, int](), dict[str, list[int]](), CHUNK_TOKENS
        for name, each in self.alive.items():
            if name in lost or not room or draw.random() < 0.2:
                continue
            starts = each.is_new or each.resumes
            if starts:
                copies += self._start(each)
            self._leave(each)
            start = each.computed
            if each.drafts and not starts:
                drafted[name], count = each.drafts, 1 + len(each.drafts)
            else:
                count = draw.choice((1, draw.randint(1, 40), draw.randint(1, CHUNK_TOKENS)))
            count = min(count, room)
            drafted.pop(name, None) if count < 1 + len(each.drafts) else None
            room -= count
            blocks = self._grow(each, start + count)
            tables, verified = [list(table) for table in each.tables], len(drafted.get(name, ()))
            each.left = and_left(tables, each.left)
            counts[name], granted[name] = count, Granted(start, start + count, tables, verified, each.left)
            if each.is_new:
                prompt = list(range(start + count))
                new.append(
                    NewRequestData(
                        req_id=name,
                        prompt_token_ids=prompt,
                        mm_features=[],
                        sampling_params=_sampling(),
                        pooling_params=None,
                        block_ids=tuple(map(list, each.tables)),
                        num_computed_tokens=start,
                        lora_request=None,
                    )
                )
            else:
                known.req_ids.append(name)
                known.new_block_ids.append(tuple(map(list, each.tables)) if each.resumes else blocks)
                known.num_computed_tokens.append(start)
                known.num_output_tokens.append(1)
                known.new_token_ids.append([])
                if each.resumes:
                    known.resumed_req_ids.add(name)
                    known.all_token_ids[name] = list(range(start + count))
            each.is_new = each.resumes = False
            accepted = draw.randint(0, len(drafted.get(name, [])))
            each.computed = start + (1 + accepted if name in drafted else count)
            each.drafts = [7] * draw.randint(0, self.settings.drafts_max) if draw.random() < 0.7 else []
        if copies:
            carried = tuple(BlockCopy(each.group, each.source, each.destination, each.tokens) for each in copies)
            setattr(known, CARRIED, carried)
        output = SchedulerOutput(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=known,
            num_scheduled_tokens=counts,
            total_num_scheduled_tokens=sum(counts.values()),
            scheduled_spec_decode_tokens=drafted,
            scheduled_encoder_inputs={},
            num_common_prefix_blocks=[0] * len(self.settings.geometry.groups),
            finished_req_ids=over,
            free_encoder_mm_hashes=[],
            preempted_req_ids=lost,
        )
        return output, granted, tuple(copies)

    def _is_long(self, each: Alive) -> bool:
        return each.computed + CHUNK_TOKENS + DRAFTS > self.settings.tokens_max

    def _start(self, each: Alive) -> list[Copy]:
        """A request begins after a hit of any length that a hit may have."""
        groups = self.settings.geometry.groups
        unit = self.settings.geometry.alignment_tokens
        longest = (self.settings.tokens_max - 2 * CHUNK_TOKENS) // unit
        each.computed = unit * int(longest * self.draw.random() ** 3)
        each.tables = [[] for _ in groups]
        self._grow(each, each.computed)
        copies = list[Copy]()
        for index, group in enumerate(groups):
            rest = each.computed % group.block_size_tokens
            if group.copies and rest:
                self._grow(each, each.computed + 1)
                copies.append(Copy(index, self.free[-1 - len(copies)], each.tables[index][-1], rest))
        return copies

    def _grow(self, each: Alive, end: int) -> tuple[list[int], ...]:
        """Blocks for the tokens before ``end``, by group; those given now are returned."""
        given = []
        for group, table in zip(self.settings.geometry.groups, each.tables, strict=True):
            size = group.block_size_tokens
            tokens = end // group.compress_ratio * group.compress_ratio
            new = [
                NULL if self._has_left(group, each, entry * size) else self.free.pop(0)
                for entry in range(len(table), -(-tokens // size))
            ]
            table += new
            given.append(new)
        return tuple(given)

    def _leave(self, each: Alive) -> None:
        """Blocks that a window has left are free."""
        for group, table in zip(self.settings.geometry.groups, each.tables, strict=True):
            for entry, block in enumerate(table):
                if block != NULL and self._has_left(group, each, entry * group.block_size_tokens):
                    table[entry] = NULL
                    self.free.append(block)

    @staticmethod
    def _has_left(group: Group, each: Alive, token: int) -> bool:
        window = group.window_tokens
        return window is not None and token + group.block_size_tokens <= each.computed - window

    def _release(self, each: Alive) -> None:
        blocks = [block for table in each.tables for block in table if block != NULL]
        self.draw.shuffle(blocks)
        self.free += blocks
        each.tables, each.drafts = [], []


def _sampling() -> Any:
    from vllm.sampling_params import SamplingParams

    return SamplingParams(temperature=0, max_tokens=10)


def run(slots: int, batches: int, *, mtp: bool, partial: bool, seed: int = 0) -> dict[str, int]:
    """Compare ``batches`` batches of blocks of ``slots`` slots.

    Raises:
        AssertionError: something differs.
    """
    system = "ascend-worker-retention"
    load_system(system)
    subject = SUBJECTS[system]
    suffixes = f"{'+mtp' * mtp}+whole-slots{'+partial' * partial}"
    geometry = load(f"dsv4-flash-ascend-{slots}{suffixes}").geometry
    largest = max(group.block_size_tokens for group in geometry.groups)
    settings = Settings(
        geometry,
        blocks=BLOCKS,
        tokens_max=int(BLOCKS_OF_C128 * largest),
        chunk_tokens=CHUNK_TOKENS,
        drafts_max=DRAFTS * mtp,
    )
    subject.install()
    with subject.while_built(settings):
        worker = WORKERS[system](subject.build(settings, Stage(running_max=ROWS)), settings.drafts_max)
    layouts = tuple(map(layout_in, geometry.groups))
    found = check_memory(worker.memory, worker.kernel_block_sizes)
    assert found is None, found
    traffic = Batches(settings, Random(f"{slots} {mtp} {partial} {seed}"))
    compared = dict.fromkeys(("batches", "slots", "entries", "copies", "inside a block"), 0)
    while compared["batches"] < batches:
        output, granted, copies = traffic.next()
        prepared = worker.step(output, copies=bool(copies))
        if prepared is None:
            continue
        found = (
            check(prepared, granted, layouts)
            or check_metadata(prepared, granted, layouts, settings.drafts_max)
            or check_copies(prepared.memories, worker.memory, layouts, copies)
        )
        assert found is None, (compared, found)
        compared["batches"] += 1
        for each in granted.values():
            compared["entries"] += sum(map(len, each.tables))
            compared["slots"] += sum(
                each.end // layout.compress_ratio - each.start // layout.compress_ratio for layout in layouts
            )
            compared["inside a block"] += any(each.start % group.block_size_tokens for group in geometry.groups)
        compared["copies"] += len(copies)
    return compared


if __name__ == "__main__":
    print(run(int(sys.argv[1]), int(sys.argv[2]), mtp="mtp" in sys.argv, partial="partial" in sys.argv))
