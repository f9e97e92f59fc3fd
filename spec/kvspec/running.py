"""The running pool over unknown maps, followed by the transition system.

``pool_of`` makes a pool of the reference, of any size and in any sound state. Its lists, dictionaries and queues are
stand-ins that read and write unknown maps. All code is the reference's own: ``BlockPool`` and ``PinnedPool``, both free
queues, both maps. Its effect on the stand-ins is compared with the effect of a transition of ``kvspec.pool`` on the
state, at an arbitrary block and content.

Where code iterates over a collection of unknown size, it meets the observed elements, if they are there, and another
one, if there is one. The effect on each element must not depend on the others; the other one shows this.
Afterwards the collection is known at the observed elements only, and is read nowhere else.

Where code repeats a step, one turn is run, from any sound state. It ends in a sound state, the one that the transition
leads to; so what holds for one turn holds for any number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from attrs import evolve

from kvreference import block_pool, free_queue, pinned_tier
from kvreference.block_pool import BlockPool
from kvreference.cached_map import CachedMap
from kvreference.free_queue import FreeQueue, ScratchFirstQueue
from kvreference.partial_map import PartialMap
from kvreference.pinned_tier import PinnedPool
from kvreference.rules import OWN_RULES
from kvspec import formulas
from kvspec.maps import Map
from kvspec.pool.induction import sound
from kvspec.pool.invariants import Point
from kvspec.pool.state import FREE, HELD, WAITING, Operands, State, Transition
from kvspec.symbolic import Term, Truth, current_path, either, expression_of, formula_of, implies


class Key(Term):
    """A term that stands in sets and lists: which of them it equals, is asked."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 0


class Unwatched(Key):
    """A key that is not observed."""

    __slots__ = ()


def key(number: Any) -> Key:
    """``number`` as a key."""
    return Key(expression_of(number))


def fresh(name: str) -> Key:
    """A number of which nothing is known."""
    return Key(current_path().fresh(name))


def undecided(name: str) -> bool:
    """Either: both are tried."""
    return current_path().decide(formulas.equal(current_path().fresh(name), formulas.number(1)))


class Cells:
    """A map that is written in place."""

    def __init__(self, known: Callable[[Any], Any]) -> None:
        self._known = known
        self._changes: list[tuple[tuple[Any, ...], Any]] = []

    def __getitem__(self, at: Any) -> Any:
        value = self._known(at)
        for where, put in self._changes:
            value = either(_same(where, at), put, value)
        return value

    def __setitem__(self, at: Any, value: Any) -> None:
        self._changes.append((at if isinstance(at, tuple) else (at,), value))


def _same(one: tuple[Any, ...], other: Any) -> Truth:
    pairs = zip(one, other if isinstance(other, tuple) else (other,), strict=True)
    return Truth(
        formulas.every(*(formulas.equal(expression_of(first), expression_of(second)) for first, second in pairs))
    )


class References:
    """The list of reference counts."""

    def __init__(self, its: Running) -> None:
        self._its = its

    def __len__(self) -> Any:
        return self._its.state.blocks

    def __getitem__(self, block: Any) -> Any:
        if isinstance(block, slice):
            # Of all blocks: the one that is looked at, and one that is held if any is.
            held = fresh("held")
            state = self._its.state
            path = current_path()
            path.fact(formula_of(implies(state.where.count(HELD) >= 1, state.where[held] == HELD)))
            path.fact(formula_of(sound(state, [Point(held), Point(self._its.at.block)])))
            looked = self._its.at.block
            return [either((looked >= block.start) & (looked < state.blocks), self._its.refs[looked], 0), self[held]]
        return self._its.refs[block]

    def __setitem__(self, block: Any, count: Any) -> None:
        self._its.refs[block] = count


class Flags:
    """The list that says of each block whether it is pinned."""

    def __init__(self, its: Running) -> None:
        self._its = its

    def __getitem__(self, block: Any) -> Truth:
        pinned: Truth = self._its.pinned[block] != 0
        return pinned

    def __setitem__(self, block: Any, pinned: bool) -> None:
        self._its.pinned[block] = 1 if pinned else 0


class Order:
    """The order of a queue: which blocks are in it, and how many."""

    def __init__(self, its: Running, there: Cells, size: Any) -> None:
        self._its, self.there, self.size = its, there, size
        self.moved_to_front: list[Any] = []
        """The blocks put at the front, in order."""

    def __len__(self) -> Any:
        return self.size

    def __bool__(self) -> bool:
        return bool(self.size > 0)

    def __contains__(self, block: Any) -> bool:
        return bool(self.there[block] != 0)

    def __setitem__(self, block: Any, _value: None) -> None:
        self.size = self.size + either(self.there[block] != 0, 0, 1)
        self.there[block] = 1

    def __delitem__(self, block: Any) -> None:
        self.size = self.size - 1
        self.there[block] = 0

    def __iter__(self) -> Iterator[Key]:
        return self._its.blocks_where(lambda block: self.there[block] != 0)

    def move_to_end(self, block: Any, last: bool = True) -> None:
        """It stands elsewhere in the same queue."""
        if block not in self:
            raise KeyError(block)
        if not last:
            self.moved_to_front.append(block)

    def popitem(self, last: bool = True) -> tuple[Key, None]:
        """Any block of the queue: in which order they stand is not known."""
        del last
        block = self._its.front(lambda each: self.there[each] != 0)
        del self[block]
        return block, None


class Contents:
    """The list of what each block is known to hold."""

    def __init__(self, its: Running) -> None:
        self._its = its

    def __getitem__(self, block: Any) -> Key | None:
        content = self._its.content[block]
        return None if content == 0 else key(content)

    def __setitem__(self, block: Any, content: Any) -> None:
        self._its.content[block] = 0 if content is None else content


class Some:
    """A tuple of which some elements are observed."""

    def __init__(self, of: Listing, about: Any) -> None:
        self._of, self._about = of, about

    def __bool__(self) -> bool:
        return self._of.has_any(self._about)

    def __contains__(self, element: Any) -> bool:
        return bool(self._of.has(self._about, element))

    def __iter__(self) -> Iterator[Key]:
        return self._of.elements(self._about)

    def __getitem__(self, place: int) -> Key:
        assert place == 0, "only of the first something is known: it is one of them"
        first = fresh("first")
        current_path().assume(formula_of(self._of.has(self._about, first)))
        return first


class Listing:
    """A dictionary of tuples: by content the blocks, or by block the contents."""

    def __init__(self, its: Running, there: Cells, by_content: bool, size: Cells | None = None) -> None:
        self._its, self.there, self._by_content, self.size = its, there, by_content, size
        self._met: list[Key] = []

    def has(self, about: Any, element: Any) -> Any:
        """Whether ``element`` is in the tuple of ``about``."""
        return self.there[(about, element) if self._by_content else (element, about)] != 0

    def has_any(self, about: Any) -> bool:
        """Whether anything is. If not, nothing that is observed is."""
        if self.size is not None:
            return bool(self.size[about] != 0)
        if isinstance(about, Unwatched):
            return True
        some = undecided("some")
        witness = fresh("listed")
        for element in (witness,) if some else self._looked():
            has = self.has(about, element)
            current_path().assume(formula_of(has if some else has == False))  # noqa: E712  # a truth is compared
        return some

    def elements(self, about: Any) -> Iterator[Key]:
        """Those that are met."""
        looked = self._its.at.block if self._by_content else self._its.at.content
        if isinstance(about, Unwatched):
            self._met = [self._its.own.block]
        else:
            self._met = list(self._its.met(looked, lambda element: self.has(about, element)))
        yield from self._met

    def get(self, about: Any, default: Any = None) -> Any:
        """The tuple of ``about``, or ``default`` if it has none."""
        return Some(self, about) if self.has_any(about) else default

    def pop(self, about: Any, default: Any = None) -> Any:
        """The same, and it is gone."""
        if not self.has_any(about):
            if default is None:
                raise KeyError(about)
            return default
        found = list(self.elements(about))
        for element in (*found, *self._looked()):
            self._put(about, element, 0)
        if self.size is not None:
            self.size[about] = 0
        return found

    def _looked(self) -> tuple[Key, ...]:
        """The elements that are looked at."""
        its = self._its
        return (its.at.block, its.own.block, *its.popped) if self._by_content else (its.at.content, its.own.content)

    def __setitem__(self, about: Any, elements: Iterable[Any]) -> None:
        elements = list(elements)
        if self.size is not None:
            new: Any = sum(either(self.has(about, each), 0, 1) for each in elements)
            kept = all(any(each is other for other in elements) for each in self._met)
            # An element that was met and is gone leaves it open how many there are.
            self.size[about] = self.size[about] + new if kept else fresh("size")
        for each in (*self._met, self._looked()[0]):
            self._put(about, each, 0)
        for each in elements:
            self._put(about, each, 1)
        self._met = []

    def _put(self, about: Any, element: Any, there: int) -> None:
        self.there[(about, element) if self._by_content else (element, about)] = there


class Running:
    """One pool of the reference, and the state that follows it."""

    def __init__(
        self,
        state: State,
        own: Operands,
        at: Point,
        pinned_tier: bool,
        scratch_first: bool,
        let_go: Map | None = None,
    ) -> None:
        self.state = state
        self.own = Operands(
            *(key(getattr(own, name)) for name in ("block", "entry", "other", "copy", "content", "use"))
        )
        """The operands of the step."""
        self.at = evolve(at, block=key(at.block), content=key(at.content))
        """What is observed."""
        self.popped: list[Key] = []
        """The blocks taken from the front of the free queue, in order."""
        self.agreed: Any = True
        """Whether all that was checked is so."""
        self.refs, self.pinned, self.content = (Cells(_of(each)) for each in (state.refs, state.pinned, state.content))
        self.let_go = let_go
        """Block to 1 if it lost its last holder, and is in no queue yet."""
        self.free, self.waits = self._order(FREE), self._order(WAITING)
        self.blocks = Listing(self, Cells(_of(state.listed)), by_content=True)
        self.begins = Listing(self, Cells(_of(state.begins)), by_content=True)
        self.inside = Listing(self, Cells(_of(state.begins)), by_content=False, size=Cells(_of(state.begun)))
        for block in (self.own.block, self.at.block):
            for place in (FREE, WAITING):
                state.where.sees(block, place)
            for content in (self.own.content, self.at.content):
                state.begins.sees((content, block), block)
        self.pool = self._made(pinned_tier, scratch_first)

    def _order(self, place: int) -> Order:
        state, let_go = self.state, self.let_go

        def there(block: Any) -> Any:
            queued = state.where[block] == place
            return either(queued if let_go is None else queued & (let_go[block] == 0), 1, 0)

        return Order(self, Cells(there), state.where.count(place))

    def _made(self, tier: bool, scratch_first: bool) -> Any:
        pool: Any = object.__new__(PinnedPool if tier else BlockPool)
        pool.rules = OWN_RULES
        pool.references = References(self)
        pool.free = _queue(ScratchFirstQueue if scratch_first else FreeQueue, self.free)
        pool.cached, pool.partial = self._maps()
        if tier:
            pool.drop_blocks_min = 1
            pool.is_pinned, pool.pinned = Flags(self), _queue(FreeQueue, self.waits)
        return pool

    def _maps(self) -> tuple[CachedMap, PartialMap]:
        cached: Any = object.__new__(CachedMap)
        cached._blocks, cached._content = self.blocks, Contents(self)
        partial: Any = object.__new__(PartialMap)
        partial._blocks, partial._contents, partial.offers = self.begins, self.inside, 0
        return cached, partial

    def met(self, looked: Any, there: Callable[[Any], Any]) -> Iterator[Key]:
        """Of a collection, what is looked at if it is ``there``, and another one if there is one."""
        if there(looked):
            yield looked
        if undecided("another"):
            another = Unwatched(current_path().fresh("another"))
            current_path().assume(formula_of((another != looked) & there(another)))
            yield another

    def blocks_where(self, there: Callable[[Any], Any]) -> Iterator[Key]:
        """The same of blocks; what is another one is sound, too."""
        for block in self.met(self.at.block, there):
            current_path().fact(formula_of(sound(self.state, [Point(block)])))
            yield block

    def follow(self, transition: type[Transition], at: Operands | None = None) -> None:
        """The transition that must have happened: it could, and leads to where the pool is now.

        What is in the slots is not asked: it says nothing of holders, queues and maps.
        """
        at = self.own if at is None else at
        self.agreed = transition.precondition(self.state, at) & self.agreed
        self.state = transition.effect(self.state, at)

    def agrees(self, sizes: bool = True) -> Any:
        """Whether the pool is where the state is, at the block and the content that are looked at."""
        state, block, content = self.state, self.at.block, self.at.content
        queued: Any = True if self.let_go is None else self.let_go[block] == 0
        same = (
            implies(block != 0, self.refs[block] == state.refs[block])
            & ((self.free.there[block] != 0) == (queued & (state.where[block] == FREE)))
            & ((self.waits.there[block] != 0) == (queued & (state.where[block] == WAITING)))
            & ((self.pinned[block] != 0) == (state.pinned[block] != 0))
            & (self.content[block] == state.content[block])
            & (self.inside.size[block] == state.begun[block])  # type: ignore[index]  # it has one
        )
        for listing, known in ((self.blocks, state.listed), (self.begins, state.begins)):
            same = implies(content != 0, listing.has(content, block) == (known[content, block] != 0)) & same
        same = implies(content != 0, self.inside.has(block, content) == (state.begins[content, block] != 0)) & same
        if sizes:
            same = (self.free.size == state.where.count(FREE)) & (self.waits.size == state.where.count(WAITING)) & same
        return same & self.agreed

    def new_cached(self, blocks: Any) -> CachedMap:
        """A new cached map of all ``blocks``, in which nothing is, as ``running-beginning`` shows of its maker."""
        self.agreed = (blocks == self.state.blocks) & self.agreed
        self.content, self.blocks = Cells(_nothing), Listing(self, Cells(_nothing), by_content=True)
        return self._maps()[0]

    def new_partial(self) -> PartialMap:
        """A new map of the entries, in which nothing is."""
        self.begins = Listing(self, Cells(_nothing), by_content=True)
        self.inside = Listing(self, Cells(_nothing), by_content=False, size=Cells(_nothing))
        return self._maps()[1]

    @contextmanager
    def runs(self) -> Iterator[Any]:
        """The pool, while its modules may ask for lengths that are terms, and make maps of a size that is one."""
        with ExitStack() as stack:
            for module in (block_pool, pinned_tier, free_queue):
                for name, by in {"len": _length, "list": _listed, "range": self.turn}.items():
                    stack.enter_context(patch.object(module, name, by, create=True))
            stack.enter_context(patch.object(block_pool, "CachedMap", self.new_cached))
            stack.enter_context(patch.object(block_pool, "PartialMap", self.new_partial))
            yield self.pool

    def front(self, there: Callable[[Any], Any]) -> Key:
        """The front of a queue: any block of it. First it is the one that the step is about."""
        block = fresh("front") if self.popped or self.own.block not in self.free else self.own.block
        current_path().assume(formula_of(there(block)))
        points = [Point(block, content=self.state.content[block]), evolve(self.at, block=block)]
        current_path().fact(formula_of(sound(self.state, points)))
        self.popped.append(block)
        return block

    def turn(self, count: Any) -> Iterator[int]:
        """Of a loop that repeats a step, one turn if there is any; as many as there are, if that is known."""
        yield from range(count if isinstance(count, int) else int(bool(count >= 1)))


def _of(known: Map) -> Callable[[Any], Any]:
    return lambda at: known[at]


def _nothing(_at: Any) -> int:
    return 0


def _length(value: Any) -> Any:
    return value.__len__()


def _listed(values: Iterable[Any]) -> list[Any]:
    # A list that Python makes asks for the length first.
    return [value for value in values]  # noqa: C416


def _queue(kind: type[FreeQueue], order: Order) -> FreeQueue:
    queue = object.__new__(kind)
    queue._order = order  # type: ignore[assignment]  # it stands for one
    return queue
