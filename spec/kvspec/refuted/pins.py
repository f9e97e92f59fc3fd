"""Refuted: a pin as a second reference. Four loopholes, each by the shortest history of one block. A block is taken,
hit, released by a window or at a request's end, and demoted. Each of these changes its count as ``CountingPool`` does;
who holds the block, and whether it is meant to be pinned, is kept next to the count. The history that z3 finds is then
run on that pool, and on the real pinned tier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import evolve, frozen

from kvreference.block_pool import BlockPool
from kvreference.content import Prefix
from kvreference.geometry import Geometry, Group
from kvreference.pinned_tier import PinnedPool
from kvreference.settings import Settings
from kvspec.obligation import Count, Obligation
from kvspec.refuted.block_managers import CountingPool
from kvspec.refuted.replay import Refuted, Replay
from kvspec.symbolic import either, implies, negated

STEPS_MAX = 6
"""How long a way may be."""
SETTINGS = Settings(Geometry((Group("full", 1),)), blocks=2, pin_drop_blocks_min=1)
BLOCK = 1
"""The only block of such a pool that is not the null block."""
TAKE, HIT, DROP, PIN, DEMOTE = range(5)
CALLS = (
    "take the block",
    "a request hits it",
    "a window gives it up",
    "a request ends, and leaves it pinned",
    "demote it",
)


@frozen
class Life:
    """Where one block stands: numbers, and truths as 0 and 1."""

    count: Any = 0
    holders: Any = 0
    pinned: Any = 0
    """Whether it is meant to be."""
    free: Any = 1
    tracked: Any = 0
    """Whether it is assumed to be pinned without a holder."""
    known: Any = 0
    """Whether it holds something that a request can hit."""


@frozen
class Call:
    """One call of a pool."""

    action: int

    @property
    def description(self) -> str:
        """What it does, in words."""
        return CALLS[self.action]


def may(life: Life, action: Any) -> Any:
    """Whether the pool can be asked for ``action`` now."""
    held = life.holders >= 1
    return (
        implies(action == TAKE, life.free == 1)
        & implies(action == HIT, life.known == 1)
        & implies((action == DROP) | (action == PIN), held)
        & implies(action == DEMOTE, life.tracked == 1)
    )


def after(life: Life, action: Any) -> Life:
    """The block after ``action``."""
    taken, hit, dropped, pins = (action == each for each in (TAKE, HIT, DROP, PIN))
    demoted = (action == DEMOTE) & (life.count == 1)
    gone = either(dropped, 2, either(pins, 1, either(demoted, 1, 0)))
    count = either(taken, 2, life.count + either(hit, 1, 0) - gone)
    frees = dropped | pins
    return Life(
        count,
        either(taken, 1, life.holders + either(hit, 1, 0) - either(frees, 1, 0)),
        either(taken | demoted, 0, either(pins, 1, life.pinned)),
        either(taken | hit, 0, either((frees | demoted) & (count == 0), 1, life.free)),
        either(action == DEMOTE, 0, either(frees & (count == 1), 1, life.tracked)),
        either(taken, 1, life.known),
    )


def lived(u: Any) -> tuple[Any, Life]:
    """Whether the first ``length`` actions can be asked for one after the other, and what becomes of the block."""
    life, legal = Life(), u.length >= 1
    for step in range(STEPS_MAX):
        action = getattr(u, f"action_{step}")
        happens = u.length > step
        legal = legal & implies(happens, may(life, action)) & implies(negated(happens), action == 0)
        then = after(life, action)
        life = Life(
            *(
                either(happens, getattr(then, name), getattr(life, name))
                for name in ("count", "holders", "pinned", "free", "tracked", "known")
            )
        )
    return legal, life


def _undoes_another(life: Life) -> Any:
    return (life.holders >= 1) & (life.tracked == 1) & (life.count == 1)


def _frees_under_holder(life: Life) -> Any:
    return (life.holders >= 1) & (life.free == 1)


def _loses_block(life: Life) -> Any:
    return (life.holders == 0) & (life.free == 0) & (life.tracked == 0)


def _forgets_pin(life: Life) -> Any:
    return (life.pinned == 1) & (life.free == 1)


def _order(u: Any) -> Any:
    """The shortest history comes first, and of equal lengths the one that pins or demotes first: no two are equal."""
    order = u.length
    for step in range(STEPS_MAX):
        order = order * len(CALLS) + len(CALLS) - 1 - getattr(u, f"action_{step}")
    return order


def _obligation(name: str, statement: str, title: str, wrong: Callable[[Life], Any]) -> Obligation:
    actions = {f"action_{step}": Count(0, len(CALLS) - 1) for step in range(STEPS_MAX)}
    return Obligation(
        id=f"refuted.{name}",
        statements=(statement,),
        title=title,
        unknowns={"length": Count(1, STEPS_MAX), **actions},
        assumes=lambda u: lived(u)[0],
        claim=lambda u: negated(wrong(lived(u)[1])),
        witnesses={},
        mutants=(),
        size=_order,
        bound=f"histories of up to {STEPS_MAX} actions on one block",
    )


def _run(pool: BlockPool, actions: Sequence[int], tracked: Callable[[], bool]) -> Life:
    """The outcome for the block if ``pool`` does all this; scratch serves no hit, so it is cached when it is taken."""
    life = Life()
    for action in actions:
        if action == TAKE:
            pool.take(1)
            pool.cached.register((0, Prefix(None, "one block", 1)), BLOCK)
        elif action == HIT:
            pool.touch([BLOCK])
        elif action == DEMOTE:
            pool.make_room(len(pool.free) + 1, ())
        elif action == PIN:
            pool.end([BLOCK])
        else:
            pool.slide([BLOCK], ())
        life = evolve(after(life, action), count=pool.references[BLOCK], free=int(BLOCK in pool.free))
        life = evolve(life, pinned=int(BLOCK in pool.pinned_blocks().blocks), tracked=int(tracked()))
    return life


def _describe_life(life: Life) -> str:
    where = "in the free queue" if life.free else "in the pinned queue" if life.tracked else "in no queue"
    pinned = "pinned" if life.pinned else "not pinned"
    return f"held by {life.holders}, a count of {life.count}, {where}, {pinned}"


def by_count(actions: Sequence[int]) -> Life:
    """The outcome for a block in the refuted pool."""
    pool = CountingPool(SETTINGS.blocks, 1)
    return _run(pool, actions, lambda: BLOCK in pool.tracked)


def by_flag(actions: Sequence[int]) -> Life:
    """The outcome for it in the real pinned tier."""
    pool = PinnedPool(SETTINGS.blocks, False, 1)
    return _run(pool, actions, lambda: BLOCK in pool.pinned)


def _replay(values: Mapping[str, Any], wrong: Callable[[Life], Any]) -> Replay:
    actions = [values[f"action_{step}"] for step in range(values["length"])]
    design, sound = by_count(actions), by_flag(actions)
    calls = tuple(map(Call, actions))
    return Replay(
        SETTINGS, calls, _describe_life(design), _describe_life(sound), bool(wrong(design)), bool(wrong(sound))
    )


def _refuted(name: str, statement: str, story: str, title: str, wrong: Callable[[Life], Any]) -> Refuted:
    return Refuted(name, statement, story, _obligation(name, statement, title, wrong), partial(_replay, wrong=wrong))


PINS = (
    _refuted(
        "pin-by-count-undoes-another",
        "KV-INV-01",
        "A pin is a second reference: a window drop takes two from a block that another request holds as well.",
        "A block that is assumed to be pinned without a holder has no holder.",
        _undoes_another,
    ),
    _refuted(
        "pin-by-count-frees-under-holder",
        "KV-INV-02",
        "A count of one is taken for a pin without a holder, and demotion frees a block that is read.",
        "A block in the free queue has no holder.",
        _frees_under_holder,
    ),
    _refuted(
        "pin-by-count-loses-block",
        "KV-INV-02",
        "A block that was demoted and hit again has one reference, and a window drop takes two: no queue has it again.",
        "A block without a holder is in a queue.",
        _loses_block,
    ),
    _refuted(
        "pin-by-count-forgets-pin",
        "KV-OP-22",
        "A pinned block is hit and dropped: the drop takes the pin along, and the block can be recycled.",
        "What is pinned is not in the free queue.",
        _forgets_pin,
    ),
)
"""The four loopholes."""
