"""The kinds of evidence for a statement, and how much of it each kind covers.

The registry says what is proved. This module says by hand what the proofs of a statement leave out, so that a proof of
a part is not read as a proof of the whole. It also lists what the explorer checks in every state of tiny models,
because the gate must not be imported; ``tests/spec`` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kvspec.obligation import Obligation, Tier
from kvspec.registry import obligations

_WHOLE = ""

_EXPLORED = {
    **{f"KV-INV-{number:02}": _WHOLE for number in range(1, 10)},
    "KV-MEM-01": _WHOLE,
    "KV-MEM-02": _WHOLE,
    "KV-MEM-04": _WHOLE,
    "KV-OP-06": "that a window leaves nothing which the next token reads if no draft in flight holds",
    "KV-OP-07": "that nothing waits for steps in flight when there is none",
    "KV-SYS-02": "of answers that are awaited while steps are ahead: the tokens, and how many are computed",
    "KV-SYS-01": _WHOLE,
    "KV-LIVE-01": _WHOLE,
    "KV-LIVE-02": _WHOLE,
    "KV-LIVE-03": _WHOLE,
    "KV-OP-15": "that nothing is cached which no hit at an admitted boundary reads",
    **{f"KV-TIER-{number:02}": _WHOLE for number in (1, 2, 3)},
    "KV-TIER-04": "where no token is drafted",
    "KV-TIER-05": "of what the reference remembers",
    "KV-TIER-06": "that no request waits for a job that is not under way",
    "KV-OP-16": "while a request with the same prompt still holds all that the hit reads",
    "KV-OP-27": "while the request that parted still holds all that the hit reads",
    "KV-WORK-01": "of boundaries, not of blocks",
}
EXPLORED: Mapping[str, str] = MappingProxyType(_EXPLORED)
"""Statement to the part of it that an explorer checks in every state of tiny models; empty if it checks all of it."""

LEMMAS = ("products", "counting")
"""The prefixes of the ids of lemmas: other proofs use them, and they prove no statement by themselves."""


_LEFT: dict[str, str] = {
    "KV-INV-01": _WHOLE,
    "KV-INV-02": _WHOLE,
    "KV-INV-03": _WHOLE,
    "KV-INV-04": _WHOLE,
    "KV-INV-05": _WHOLE,
    "KV-INV-06": _WHOLE,
    "KV-INV-07": _WHOLE,
    "KV-INV-08": _WHOLE,
    "KV-INV-09": _WHOLE,
    "KV-OP-01": _WHOLE,
    "KV-OP-02": _WHOLE,
    "KV-OP-03": _WHOLE,
    "KV-OP-04": _WHOLE,
    "KV-OP-05": _WHOLE,
    "KV-OP-06": _WHOLE,
    "KV-OP-07": _WHOLE,
    "KV-OP-08": _WHOLE,
    "KV-OP-09": _WHOLE,
    "KV-OP-10": _WHOLE,
    "KV-OP-11": _WHOLE,
    "KV-OP-12": _WHOLE,
    "KV-OP-13": _WHOLE,
    "KV-OP-14": _WHOLE,
    "KV-OP-15": _WHOLE,
    "KV-OP-16": _WHOLE,
    "KV-OP-17": _WHOLE,
    "KV-OP-18": _WHOLE,
    "KV-OP-19": "that the copy is ordered with the admission",
    "KV-OP-20": _WHOLE,
    "KV-OP-21": _WHOLE,
    "KV-OP-22": _WHOLE,
    "KV-OP-23": _WHOLE,
    "KV-OP-24": _WHOLE,
    "KV-OP-25": "that tables over counts release what the running ones do, which tests compare, and that no other "
    "request frees the blocks meanwhile",
    "KV-OP-26": "that no more drafts are in flight than there are states for, and that steps are cut at boundaries",
    "KV-OP-27": _WHOLE,
    "KV-MEM-01": _WHOLE,
    "KV-MEM-02": "drafts of a request's first step, for which only some releases give it slots",
    "KV-MEM-04": "that the last holder waits for the steps that use a block; that the steps that count as in flight "
    "are those that were dispatched and are not over, where more than one draft is proposed, or the request was "
    "preempted since; what copies read, which is freed when they are dispatched",
    "KV-MEM-03": "that a worker's code computes these slots, which the level of a worker compares",
    "KV-LEAK-01": _WHOLE,
    "KV-WORK-01": _WHOLE,
    "KV-SYS-03": "what a step sends its worker, of which the reference has no part",
    "KV-LIVE-01": _WHOLE,
    "KV-LIVE-02": _WHOLE,
    "KV-TIER-01": "that the place is the one that its request has for it, and more than one block to a chunk",
    "KV-TIER-02": "steps in flight, of which the reference of a second tier knows none",
    "KV-TIER-03": "that what is loaded is all that is counted, in models of more than two groups; a hit that other "
    "requests evict before it is loaded, since the reference loads at once",
    "KV-TIER-04": "that what is cached on the device is computed when it is copied",
    "KV-TIER-05": "what else a connector remembers",
    "KV-LIVE-03": "steps that a transfer holds up",
}

LEFT: Mapping[str, str] = MappingProxyType(_LEFT)
"""Statement to what its proofs leave to tests; empty if nothing. Every statement that a proof names is here."""

_ANSWERED = (
    "that each step is answered before the next one is scheduled, as the reference's scheduler does it: schedulers "
    "that schedule steps ahead are tested"
)
_ENDS = "that every transfer ends at some time"
_WRITTEN = (
    "that a worker writes what a step is to write, in the order of the steps, and another node what it is to bring, or "
    "reports that it did not: memory and the level of a worker follow both"
)
ASSUMED: Mapping[str, str] = MappingProxyType(
    {
        "KV-MEM-01": f"{_WRITTEN}; of states, that the worker writes one at each block's end that a step with drafts "
        "passes, and brings that of the last draft that holds to its token's place; that each request which "
        "shares what a load that failed was to fill is set back, too; where another node writes out of turn, KV-MEM-04",
        "KV-MEM-04": _WRITTEN,
        **{f"KV-LIVE-{number:02}": f"{_ENDS}; {_ANSWERED}" for number in (1, 2, 3)},
    }
)
"""Statement to what its proofs assume of those with whom a block manager and its scheduler work."""


_NO_SYSTEM = "it is about the objects of a system, which no proof reads"
_NO_PART = "it is about what a scheduler sends, of which the reference has no part"

_WITHOUT = {
    "KV-LEAK-02": _NO_SYSTEM,
    "KV-WORK-02": _NO_SYSTEM,
    "KV-SYS-01": "what is legal depends on all requests at once",
    "KV-SYS-02": "what is legal depends on all requests at once",
    "KV-SYS-04": "only runs of a system can show it; the reference draws nothing at random",
    "KV-SYS-05": _NO_PART,
    "KV-SYS-06": "it is proved of the first that runs, and not of each that a step serves",
    "KV-TIER-06": "the reference of a second tier has no scheduler",
}
WITHOUT: Mapping[str, str] = MappingProxyType(_WITHOUT)
"""Statement to why nothing of it is proved: every statement that no proof names is here."""


def chapter_name(proof: Obligation) -> str:
    """The name of the chapter that it belongs to, or one of ``LEMMAS``: by what its id begins with."""
    return proof.id.rpartition(".")[0]


def proofs_of(statement: str, known: Mapping[str, Obligation] | None = None) -> Sequence[Obligation]:
    """The obligations that name ``statement`` and prove it, or a part of it."""
    every = (obligations() if known is None else known).values()
    return [each for each in every if statement in each.statements and chapter_name(each) not in LEMMAS]


def evidence(statement: str, proofs: Sequence[Obligation], left: Mapping[str, str] = LEFT) -> str:
    """The kinds of evidence for ``statement``, as a chapter shows them, with ``in part`` where it is not for all of it.

    Everything is tested (T).
    """
    tiers = {proof.tier for proof in proofs}
    all_of_it = left.get(statement) == _WHOLE
    kinds = []
    if Tier.ALL in tiers:
        kinds.append("P" if all_of_it else "P in part")
    elif Tier.MODEL in tiers:
        kinds.append("M" if all_of_it else "M in part")
    if EXPLORED.get(statement) == _WHOLE or (tiers == {Tier.BOUNDED} and all_of_it):
        kinds.append("B")
    elif statement in EXPLORED or (Tier.BOUNDED in tiers and kinds != ["P"]):
        kinds.append("B in part")
    return ", ".join((*kinds, "T"))
