"""The tiny schedulers: does everybody get on, whatever is submitted for however long?"""

from __future__ import annotations

from typing import Any

from kvgate.explore.scheduler_world import Shop, TinyScheduler
from kvreference.attention import Kind
from kvreference.geometry import Geometry, Group
from kvreference.operations import Arrive, Run
from kvreference.scheduler.limits import Limits
from kvreference.scheduler.operations import Reply, Submit
from kvreference.settings import Settings

_FULL = Group(Kind.FULL, 1)
_WINDOW = Group(Kind.SLIDING_WINDOW, 1, 2)


def _submit(prompt_tokens: int, answers_max: int = 1, external_tokens: int = 0, sends: bool = False) -> Submit:
    """A request; what another node offers is loaded while it waits."""
    arrival = Arrive(0, (Run(0, prompt_tokens),))
    return Submit(arrival, answers_max, external_tokens, loads=external_tokens > 0, sends=sends)


def _settings(*groups: Group, blocks: int, chunk_tokens: int, requests_max: int = 2, **settings: Any) -> Settings:
    limits = {"blocks": blocks, "chunk_tokens": chunk_tokens, "requests_max": requests_max}
    return Settings(Geometry(groups), tells_events=False, **{"tokens_max": 6, **limits, **settings})


SCHEDULERS = (
    TinyScheduler(
        "tiny-scheduler",
        "admission, chunks, preemption and loads under one budget: everybody gets on",
        Shop(
            _settings(_FULL, _WINDOW, blocks=9, chunk_tokens=2),
            Limits(budget_tokens=3, running_max=2),
            (_submit(2, 2), _submit(4), _submit(4, external_tokens=2), _submit(3, sends=True)),
        ),
        Shop(
            _settings(_FULL, _WINDOW, blocks=11, requests_max=3, chunk_tokens=2),
            Limits(budget_tokens=3, running_max=2),
            (_submit(2, 2), _submit(4), _submit(4, external_tokens=2), _submit(3, sends=True)),
        ),
    ),
    TinyScheduler(
        "tiny-scheduler-tight",
        "full attention in a pool that two requests outgrow: preemption, and requests that never fit",
        Shop(
            _settings(_FULL, blocks=5, chunk_tokens=4),
            Limits(budget_tokens=4, running_max=2),
            (_submit(1, 4), _submit(2, 2), _submit(3, external_tokens=2), _submit(5)),
        ),
        Shop(
            _settings(_FULL, blocks=6, requests_max=3, chunk_tokens=2),
            Limits(budget_tokens=3, running_max=2),
            (_submit(1, 4), _submit(2, 3), _submit(4, external_tokens=3), _submit(5)),
        ),
    ),
    TinyScheduler(
        "tiny-scheduler-sends",
        "blocks that another node reads when their request has ended: who runs first waits, and loses nothing",
        Shop(
            _settings(Group(Kind.FULL, 2), blocks=6, chunk_tokens=4, requests_max=3, tokens_max=12, caches=False),
            Limits(budget_tokens=4, running_max=2),
            (_submit(6, 2, external_tokens=4), _submit(2, 2, sends=True)),
            (Reply(),),
        ),
        Shop(
            _settings(Group(Kind.FULL, 2), blocks=6, chunk_tokens=4, requests_max=3, tokens_max=12),
            Limits(budget_tokens=4, running_max=2),
            (_submit(6, external_tokens=4), _submit(2, 2, sends=True)),
        ),
    ),
    TinyScheduler(
        "tiny-scheduler-drafts",
        "a draft layer: look-ahead slots, drafts accepted and rejected, and loads beside them",
        Shop(
            _settings(Group(Kind.FULL, 1, lookahead=True), blocks=7, chunk_tokens=4, drafts_max=1),
            Limits(budget_tokens=4, running_max=2),
            (_submit(2, 2), _submit(3, external_tokens=3)),
            (Reply(), Reply(drafts=1), Reply(accepted=1, drafts=1)),
        ),
        Shop(
            _settings(Group(Kind.FULL, 1, lookahead=True), blocks=9, requests_max=3, chunk_tokens=4, drafts_max=1),
            Limits(budget_tokens=4, running_max=2),
            (_submit(2, 2), _submit(3, external_tokens=3)),
            (Reply(), Reply(drafts=1), Reply(accepted=1, drafts=1)),
        ),
    ),
)
"""By what they are about."""
