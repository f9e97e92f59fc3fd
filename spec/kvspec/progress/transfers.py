"""One request that loads, or is still read after its end: the running block manager over counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attrs import define, field

from kvreference.answers import Hit
from kvreference.holdings import Allocation, Span
from kvreference.operations import Abort, Admit, Finish, Transferred
from kvreference.population import Request, Status
from kvspec.progress.counted import CountedManager, CountedTable, on_counts
from kvspec.progress.groups import group_of
from kvspec.progress.stand_ins import Counted, length_of, settings_of


def _limits(u: Any) -> dict[str, Any]:
    """Limits within which whatever is to be computed is computed in one step."""
    return {
        "tokens_max": u.tokens + 2,
        "chunk_tokens": u.tokens,
        "full_sequence_must_fit": False,
        "lookahead_tokens": 0,
    }


@define
class _Granting:
    """Holdings that give whatever is asked for, and remember what it was."""

    spans: list[Span] = field(factory=list)
    tables: dict[int, list[Any]] = field(factory=lambda: {0: []})
    pool: None = None

    def allocate(self, _request: int, span: Span, _hit: Hit) -> Allocation:
        """Granted."""
        self.spans.append(span)
        return Allocation((), ())

    def release_all(self, _request: int) -> None:
        """Nothing is held here."""


def _request(tokens: Any, computed: Any, status: Status) -> Request:
    counted: Any = Counted(tokens)
    keys: Any = None
    return Request(0, counted, keys, False, status=status, tokens_computed=computed)


class Load:
    """A request is admitted behind its hit and what another node offers; later the transfer is over."""

    def __init__(self, u: Any, at_once: bool = False) -> None:
        settings = settings_of(2, **_limits(u))
        settings.geometry.keeps_states = bool(u.keeps_states)
        with on_counts():
            manager = CountedManager(settings)
            hit = Hit(u.hit, ())
            cache: Any = SimpleNamespace(
                look_up=lambda *_: hit, is_ready=lambda *_: True, register=lambda *_: [], dispatched=lambda: None
            )
            manager.cache = cache
            granting = _Granting()
            holdings: Any = granting
            manager.holdings = holdings
            manager.prefixes[0] = []
            request = manager.population.alive[0] = _request(u.tokens, 0, Status.WAITING)
            self.answer: Any = manager.apply(Admit(0, u.tokens, u.external, not at_once))
            self.span = granting.spans[0]
            """What slots were asked for."""
            self.computed = request.tokens_computed
            """How many tokens count as computed then."""
            self.loads = request.status is Status.LOADING
            if self.loads:
                manager.apply(Transferred(0, u.arrives == 1))
            self.computed_after = request.tokens_computed
            """The same, once the transfer is over."""
            self.waits = request.status is Status.WAITING


def first_kept(u: Any, load: Load) -> Any:
    """The first token whose block was not given up where room was made for the load."""
    return group_of(u).blocks_unread(load.span.computed) * u.block


LOADING, RUNNING = range(2)


class End:
    """A request that holds blocks is aborted or ends; later the transfer is over, if there is one."""

    def __init__(self, u: Any) -> None:
        group = group_of(u)
        settings = settings_of(u.blocks + 1, **_limits(u))
        settings.geometry.groups = (group,)
        status = Status.LOADING if u.stands == LOADING else Status.RUNNING
        with on_counts():
            manager = CountedManager(settings)
            manager.population.alive[0] = _request(u.tokens, u.computed, status)
            manager.prefixes[0] = []
            # It stands for a table, of which only counts are known.
            manager.tables[0] = [CountedTable(u.entries, u.dead)]  # type: ignore[list-item]
            pool: Any = manager.pool
            pool.blocks_free -= u.entries - u.dead
            self.read = group.blocks_dead(u.computed)
            """Before which entry the next token reads nothing."""
            manager.apply(Finish(0, u.sends == 1) if u.finishes == 1 else Abort(0))
            self.held = _held(manager)
            self.first_held = manager.tables[0][0].dead if 0 in manager.tables else None
            self.alive = 0 in manager.population.alive
            if self.alive:
                manager.apply(Transferred(0, u.arrives == 1))
            self.held_after = _held(manager)
            self.free_after = length_of(manager.pool.free)
            self.gone = 0 not in manager.population.alive and 0 not in manager.prefixes


def _held(manager: CountedManager) -> Any:
    return sum(length_of(table.live()) for table in manager.tables.get(0, ()))
