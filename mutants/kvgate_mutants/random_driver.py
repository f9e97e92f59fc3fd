"""Drives vLLM's block manager at random, the way its scheduler does, and checks nothing.

It uses no reference and no expectation: the block manager's answers are used as they are. It shows what the sanitizer
finds in a program that does not test. A run ends early if the block manager raises.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from attrs import define, field, frozen
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

TOKENS_MAX, CHUNK_TOKENS, LOOKAHEAD_TOKENS = 96, 24, 3
REQUESTS_MAX = 6
FULL, WINDOW, CHUNKED = "full", "window", "chunked"


@frozen
class Shape:
    """What kind of model: its groups, as attention and block size."""

    groups: tuple[tuple[str, int], ...]
    drafts: bool = False
    blocks: int = 24


SHAPES = {
    "full": Shape(((FULL, 4),)),
    "full-drafts": Shape(((FULL, 4),), drafts=True),
    "window": Shape(((WINDOW, 4),)),
    "window-drafts": Shape(((WINDOW, 4),), drafts=True),
    "hybrid": Shape(((FULL, 4), (WINDOW, 4), (WINDOW, 4)), blocks=48),
    "hybrid-drafts": Shape(((FULL, 4), (WINDOW, 4)), drafts=True, blocks=40),
    "mixed-blocks": Shape(((FULL, 8), (WINDOW, 4)), blocks=40),
    "local": Shape(((CHUNKED, 4),)),
}


def spec_of(kind: str, block_size: int) -> Any:
    """vLLM's description of a group."""
    shared: dict[str, Any] = {"block_size": block_size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    if kind == WINDOW:
        return SlidingWindowSpec(**shared, sliding_window=10)
    if kind == CHUNKED:
        return ChunkedLocalAttentionSpec(**shared, attention_chunk_size=16)
    return FullAttentionSpec(**shared)


@define(eq=False)
class Driver:
    """One block manager and its requests."""

    shape: Shape
    draw: random.Random
    events: bool = True
    manager: Any = field(init=False)
    waiting: list[Any] = field(factory=list)
    running: list[Any] = field(factory=list)
    _hasher: Callable[[Any], Any] = field(init=False)
    _arrived: int = 0

    def __attrs_post_init__(self) -> None:
        init_none_hash(sha256)
        grain = min(size for _, size in self.shape.groups)
        self._hasher = get_request_block_hasher(grain, sha256)
        groups = [KVCacheGroupSpec([f"layer{index}"], spec_of(*each)) for index, each in enumerate(self.shape.groups)]
        self.manager = KVCacheManager(
            KVCacheConfig(num_blocks=self.shape.blocks, kv_cache_tensors=[], kv_cache_groups=groups),
            max_model_len=TOKENS_MAX,
            hash_block_size=grain,
            max_num_batched_tokens=CHUNK_TOKENS,
            use_eagle=self.shape.drafts,
            log_stats=True,
            enable_kv_cache_events=self.events,
        )

    def run(self, steps: int) -> None:
        """So many steps; then every request ends."""
        for _ in range(steps):
            self.step()
        for request in (*self.waiting, *self.running):
            self.manager.free(request)
        self.waiting, self.running = [], []
        self.manager.take_events()

    def step(self) -> None:
        """One step of a scheduler: running requests first, then waiting ones; sometimes something else before."""
        self.manager.new_step_starts()
        self._disturb()
        while len(self.waiting) + len(self.running) < self.draw.randint(1, REQUESTS_MAX):
            self.waiting.append(self._arrive())
        scheduled = [request for request in list(self.running) if self._schedule(request)]
        while self.waiting and len(self.running) < REQUESTS_MAX:
            if not self.admit(self.waiting[0]):
                break
            scheduled.append(self.waiting.pop(0))
        if self.running and self.draw.random() < 0.3:
            self.manager.get_num_common_prefix_blocks(self.draw.choice(self.running).request_id)
        for request in scheduled:
            if request in self.running:
                self._sample(request)
        if self.draw.random() < 0.5:
            self.manager.take_events()
            self.manager.make_prefix_cache_stats()

    # Requests

    def _arrive(self) -> Any:
        """A request whose prompt has much in common with others."""
        draw = self.draw
        length = draw.choice((1, 3, 4, 7, 8, 8, 12, 15, 16, 16, 17, 24, 31, 32, 40, 48))
        tokens = [position // 4 + 1 for position in range(length)]
        if draw.random() < 0.4:
            # A near twin: one token differs, often the last of a block.
            place = draw.choice((3, 7, 11, draw.randrange(length)))
            tokens[min(place, length - 1)] += 100
        if draw.random() < 0.2:
            # The same blocks after another beginning, or in another order.
            tokens = tokens[4:8] + tokens[:4] + tokens[8:]
        media = []
        if draw.random() < 0.25 and length >= 8:
            begin = draw.choice((1, 2))
            media = [self._item(draw.choice("ab"), begin), self._item(draw.choice("ab"), begin + 1)]
            tokens[1:4] = [999] * 3
        return self.request(
            tokens,
            reads=draw.random() > 0.1,
            mm_features=media,
            lora_request=LoRARequest("adapter", 1, "/adapter") if draw.random() < 0.15 else None,
            cache_salt="salt" if draw.random() < 0.15 else None,
        )

    def request(self, tokens: list[int], reads: bool = True, **keys: Any) -> Any:
        """A request with this prompt."""
        self._arrived += 1
        return Request(
            request_id=f"request-{self._arrived}",
            prompt_token_ids=tokens,
            sampling_params=SamplingParams(max_tokens=TOKENS_MAX, skip_reading_prefix_cache=not reads),
            pooling_params=None,
            block_hasher=self._hasher,
            **keys,
        )

    @staticmethod
    def _item(identifier: str, offset: int) -> Any:
        place = PlaceholderRange(offset=offset, length=1)
        return MultiModalFeatureSpec(data=None, modality="image", identifier=identifier, mm_position=place)

    def admit(self, request: Any) -> bool:
        """Let a waiting request begin; whether it could."""
        manager, hit, blocks = self.manager, 0, None
        if request.num_computed_tokens == 0:
            blocks, hit = manager.get_computed_blocks(request)
        named = {"num_new_computed_tokens": hit, "new_computed_blocks": blocks}
        # Some schedulers let a request begin whose whole prompt does not fit yet.
        if self.draw.random() < 0.8 and not manager.can_fit_full_sequence(request, **named):
            return False
        tokens = min(request.num_tokens - hit, self.draw.choice((CHUNK_TOKENS, 5, 8)))
        if manager.allocate_slots(request, tokens, **named) is None:
            return False
        manager.get_block_ids(request.request_id)
        request.num_computed_tokens = hit + tokens
        self.running.append(request)
        return True

    def _schedule(self, request: Any) -> bool:
        """One step of a running request, for which others may be preempted."""
        if request not in self.running:
            return False
        wanted = request.num_tokens_with_spec - request.num_computed_tokens
        tokens = min(wanted, CHUNK_TOKENS, TOKENS_MAX - 1 - request.num_computed_tokens)
        if tokens <= 0:
            self._end(request)
            return False
        lookahead = LOOKAHEAD_TOKENS if self.shape.drafts else 0
        while self.manager.allocate_slots(request, tokens, num_lookahead_tokens=lookahead) is None:
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        self.manager.get_block_ids(request.request_id)
        request.num_computed_tokens += tokens
        return True

    def _sample(self, request: Any) -> None:
        """The worker has computed the step: accept some of the drafts, and sample a token after them."""
        rejected = max(0, request.num_computed_tokens - request.num_tokens)
        drafts, request.spec_token_ids = request.spec_token_ids, []
        if request.num_computed_tokens < request.num_tokens:
            return
        accepted = self.draw.randint(0, rejected)
        request.num_computed_tokens -= rejected - accepted
        request.append_output_token_ids([*drafts[:accepted], self.draw.choice((1, 2, 3))])
        if request.num_tokens >= TOKENS_MAX or self.draw.random() < 0.08:
            self._end(request)
        elif self.shape.drafts:
            request.spec_token_ids = [self.draw.choice((1, 2, 3)) for _ in range(self.draw.randint(0, 3))]

    def _preempt(self, request: Any) -> None:
        self.manager.free(request)
        self.running.remove(request)
        request.num_computed_tokens, request.spec_token_ids = 0, []
        request.num_preemptions += 1
        self.waiting.insert(0, request)

    def _end(self, request: Any) -> None:
        self.manager.free(request)
        self.running.remove(request)

    def _disturb(self) -> None:
        """What happens rarely."""
        draw = self.draw
        if self.running and draw.random() < 0.05:
            self._preempt(draw.choice(self.running))
        if self.running and draw.random() < 0.05:
            self._end(draw.choice(self.running))
        if self.waiting and draw.random() < 0.05:
            self.manager.free(self.waiting.pop())
        if draw.random() < 0.05:
            self.manager.evict_blocks({draw.randrange(1, self.shape.blocks) for _ in range(3)})
        if draw.random() < 0.05:
            self.manager.reset_prefix_cache()
        if draw.random() < 0.02:
            while self.running:
                self._end(self.running[-1])
            self.manager.reset_prefix_cache()


def drive(name: str, seed: int, steps: int) -> None:
    """One run; the same seed does the same."""
    Driver(SHAPES[name], random.Random(f"{name}-{seed}"), events=seed % 2 == 0).run(steps)
