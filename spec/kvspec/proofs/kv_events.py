"""Chapter 12: events tell exactly the blocks that became cached, each with its own tokens."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from attrs import evolve

from kvreference import caching
from kvspec.obligation import Count, Lemma, Obligation, only
from kvspec.proofs.lemmas import MULTIPLE

DUE_MOST, NAMED_MOST = 8, 3


def _positions(u: Any, most: int) -> list[Any]:
    """The positions that are due, in ascending order."""
    positions: list[Any] = []
    for n in range(u.due.__index__()):
        positions.append(getattr(u, f"gap{n}") + (positions[-1] + 1 if positions else 0))
    assert len(positions) <= most
    return positions


def _unknown_positions(most: int) -> dict[str, Count]:
    return {"due": Count(0, most), **{f"gap{n}": Count() for n in range(most)}}


def _runs(u: Any) -> Any:
    """Whether the runs are the positions in order, neighbours together and all others apart."""
    positions = _positions(u, DUE_MOST)
    runs = list(caching._runs(iter(positions)))
    together = [position for run in runs for position in run]
    if len(together) != len(positions) or not all(runs):
        return False
    shown: Any = True
    for reported, position in zip(together, positions, strict=True):
        shown = shown & (reported == position)
    for run in runs:
        for before, position in pairwise(run):
            shown = shown & (position == before + 1)
    for run, following in pairwise(runs):
        shown = shown & (following[0] > run[-1] + 1)
    return shown


def _run_apart(positions: Any) -> Any:
    return ([position] for position in positions)


def all_in_one(positions: Any) -> Any:
    """All positions as one run, whether they are neighbours or not."""
    everything = list(positions)
    return iter([everything] if everything else [])


def _last_is_forgotten(positions: Any) -> Any:
    return iter(list(SOUND_RUNS(positions))[:-1])


SOUND_RUNS = caching._runs

RUNS = Obligation(
    id="kv-events.runs-are-what-is-due",
    statements=("KV-OP-12",),
    title="Every block that becomes cached is reported once, in order, with adjacent blocks only.",
    unknowns=_unknown_positions(DUE_MOST),
    claim=_runs,
    witnesses={
        "two runs of more than one block": lambda u: (
            (u.due == 5) & (u.gap1 == 0) & (u.gap2 >= 1) & (u.gap3 == 0) & (u.gap4 == 0)
        )
    },
    mutants=(
        only(
            "all-in-one",
            "All that is due is reported as one run (vllm-project/vllm#44451).",
            "kvreference.caching:_runs",
            all_in_one,
        ),
        only("each-apart", "Every block is reported by an event of its own.", "kvreference.caching:_runs", _run_apart),
        only("last-run-lost", "The last run is not reported.", "kvreference.caching:_runs", _last_is_forgotten),
    ),
    bound=f"up to {DUE_MOST} blocks at once, wherever they are: a run ends or continues by its last block only",
)


class _Stretch:
    """Something that has one thing per token or grain, of which only the place is known."""

    def __getitem__(self, place: Any) -> Any:
        return [(place.start, place.stop)] if isinstance(place, slice) else place + 1


def stored_at(u: Any) -> list[Any]:
    """The events of the blocks that are due, with places where there would be tokens, prefixes and keys."""
    keys = SimpleNamespace(lora=None, of_block=lambda start, end: (start, end))
    request: Any = SimpleNamespace(tokens=_Stretch(), keys=keys)
    geometry: Any = SimpleNamespace(
        grain_tokens=u.grain, hashed_ahead_tokens=0, groups=(SimpleNamespace(block_size_tokens=u.block),)
    )
    prefixes: Any = _Stretch()
    runs = caching._runs(iter(_positions(u, NAMED_MOST)))
    return [caching._stored(geometry, 0, request, prefixes, run, run) for run in runs]


def _reports_its_tokens(u: Any) -> Any:
    """Whether each event has the tokens and keys of the blocks that it names and no others, after its parent."""
    shown: Any = True
    for event in stored_at(u):
        ((start, end),) = event.tokens
        shown = shown & (end - start == u.block * len(event.contents)) & (start % u.block == 0)
        for place, ((_group, grains), keys) in enumerate(zip(event.contents, event.extra_keys, strict=True)):
            begins: Any = keys[0]
            shown = shown & (grains * u.grain == start + u.block * (place + 1))
            shown = shown & (begins == start + u.block * place) & (keys[1] == begins + u.block)
        parent = 0 if event.parent is None else event.parent[1]
        shown = shown & (parent * u.grain == start)
    return shown


def _whole_grains(u: Any) -> tuple[Lemma, ...]:
    """Every block ends where a grain of content ends."""
    positions = _positions(u, NAMED_MOST)
    ends = [*positions, *(position + 1 for position in positions)]
    return tuple(Lemma(MULTIPLE, {"factor": end, "multiple": u.block, "unit": u.grain}) for end in ends)


def _spans_what_is_due(geometry: Any, index: int, request: Any, prefixes: Any, *runs: Any) -> Any:
    """Its tokens begin a block early."""
    event = SOUND_STORED(geometry, index, request, prefixes, *runs)
    tokens: Any = event.tokens
    size = geometry.groups[index].block_size_tokens
    ((start, end),) = tokens
    longer: Any = ((start, end + size),)
    return evolve(event, tokens=longer)


SOUND_STORED = caching._stored

TOKENS = Obligation(
    id="kv-events.tokens-are-those-of-the-blocks",
    statements=("KV-OP-12",),
    title="An event carries exactly the tokens of the blocks that it names, and its parent ends where they begin.",
    unknowns={**_unknown_positions(NAMED_MOST), "block": Count(1), "grain": Count(1)},
    assumes=lambda u: u.block % u.grain == 0,
    claim=_reports_its_tokens,
    lemmas=_whole_grains,
    witnesses={
        "a gap, in blocks of several grains": lambda u: (
            (u.due == 3) & (u.gap1 == 0) & (u.gap2 >= 1) & (u.grain >= 2) & (u.block > u.grain) & (u.gap0 >= 1)
        )
    },
    mutants=(
        only(
            "spans-the-gap",
            "One event reports blocks that are not adjacent, with the tokens between them (vllm-project/vllm#44451).",
            "kvreference.caching:_runs",
            all_in_one,
        ),
        only(
            "a-block-too-many",
            "The tokens continue for a block that is not named.",
            "kvreference.caching:_stored",
            _spans_what_is_due,
        ),
        only(
            "parent-is-the-first-block",
            "Content is counted from the block's beginning, and not from its end.",
            "kvreference.caching:content_up_to",
            lambda geometry, group, prefixes, tokens: (group, prefixes[tokens // geometry.grain_tokens]),
        ),
    ),
    bound=f"up to {NAMED_MOST} blocks at once, wherever they are and of any size; more are more of the same",
)

OBLIGATIONS = (RUNS, TOKENS)
