"""The tap on vLLM's block manager: each of its calls reported to a listener, with the call's own arguments and answer.

The gate's work meter, the scheduler level, the shadow of a live engine and the simulation all listen through a ``Tap``.
A listener has a method ``before_NAME`` or ``after_NAME`` for each call ``NAME`` that it wants reported: the first gets
the arguments, the second the answer and then the arguments. A call that no method is for is not touched, so it costs
nothing. The engine's own call is always made, and its answer is what the caller gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any, Protocol, TypeAlias

Hook: TypeAlias = Callable[..., object]

CALLS = (
    "allocate_slots",
    "cache_blocks",
    "can_fit_full_sequence",
    "evict_blocks",
    "free",
    "get_computed_blocks",
    "get_num_common_prefix_blocks",
    "make_prefix_cache_stats",
    "new_step_starts",
    "pop_blocks_for_free",
    "remove_skipped_blocks",
    "reset_prefix_cache",
    "take_events",
)
"""The calls of a block manager that decide something or take something out; releases lack some of them."""


class Listener(Protocol):
    """Is called around the calls of one object; besides these two it has ``before_NAME`` and ``after_NAME``."""

    def raised(self, name: str, error: BaseException, arguments: Sequence[Any]) -> object:
        """The engine's own call of ``name`` raised, and the exception is on its way to the caller."""
        ...

    def failed(self, error: Exception) -> bool:
        """The listener itself raised; whether the caller is spared the exception."""
        ...


class Raises:
    """A listener that has nothing to do when a call raises, and whose own exceptions reach the caller."""

    def raised(self, name: str, error: BaseException, arguments: Sequence[Any]) -> None:
        """Nothing."""
        del name, error, arguments

    def failed(self, error: Exception) -> bool:
        """Never spare the caller."""
        del error
        return False


class Tap:
    """The wrappers of one listener, on objects or on classes. They can be removed."""

    def __init__(self, listener: Listener, is_on: bool = True) -> None:
        self.listener = listener
        self.is_on = is_on
        """Whether calls are reported; if not, they are only passed on."""
        self.is_closed = False
        """Whether nothing is reported ever again, not even through a wrapper that could not be removed."""
        self.placed: list[tuple[object, str, object, object]] = []
        """The wrappers: on which object, for which call, what that object itself had there before, and the wrapper."""

    def listen(self, manager: object, calls: tuple[str, ...] = CALLS) -> None:
        """Report each of ``calls`` that the listener has a method for.

        Raises:
            AttributeError: the manager lacks one of them.
            TypeError: the listener has a method for a call that is not in ``CALLS``.
        """
        hooks = {name for name in dir(self.listener) if name.startswith(("before_", "after_"))}
        unknown = {name for name in hooks if name.partition("_")[2] not in CALLS}
        if unknown:
            raise TypeError(f"there are no such calls: {', '.join(sorted(unknown))}")
        for name in calls:
            before, after = (getattr(self.listener, f"{when}_{name}", None) for when in ("before", "after"))
            if before is not None or after is not None:
                self.watch(manager, name, before=before, after=after)

    def watch(
        self, owner: object, name: str, *, before: Hook | None = None, after: Hook | None = None, always: bool = False
    ) -> None:
        """Report one call of ``owner``, if the tap is on; ``before`` alone also ``always``, until the tap is closed.

        Raises:
            AttributeError: ``owner`` has no such call.
        """
        original = getattr(owner, name)
        if before is None:
            assert after is not None, "a listener is required"
            self.put(owner, name, self.reported(name, original, after))
        elif after is None:
            self.put(owner, name, self._first(original, before, always))
        else:
            self.put(owner, name, self._around(name, original, before, after))

    def put(self, owner: object, name: str, value: Callable[..., Any]) -> None:
        """Put something in the place of a call, to be removed with the other wrappers."""
        self.placed.append((owner, name, _own(owner, name), value))
        setattr(owner, name, value)

    def close(self) -> None:
        """Remove all wrappers; a wrapper that others have wrapped since stays, and passes calls on."""
        self.is_on, self.is_closed = False, True
        for owner, name, before, now in reversed(self.placed):
            if _own(owner, name) is not now:
                continue
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self.placed.clear()

    # These three are on the engine's hot path: one function call each, besides the listener's.

    def reported(self, name: str, original: Callable[..., Any], after: Hook) -> Callable[..., Any]:
        """A wrapper that reports the call afterwards."""
        raised, failed = self.listener.raised, self.listener.failed

        def call(*arguments: Any, **named: Any) -> Any:
            try:
                answer = original(*arguments, **named)
            except BaseException as error:
                raised(name, error, arguments)
                raise
            if self.is_on:
                try:
                    after(answer, *arguments, **named)
                except Exception as error:
                    if not failed(error):
                        raise
            return answer

        return call

    def _first(self, original: Callable[..., Any], before: Hook, always: bool) -> Callable[..., Any]:
        failed = self.listener.failed

        def call(*arguments: Any, **named: Any) -> Any:
            if self.is_on or (always and not self.is_closed):
                try:
                    before(*arguments, **named)
                except Exception as error:
                    if not failed(error):
                        raise
            return original(*arguments, **named)

        return call

    def _around(self, name: str, original: Callable[..., Any], before: Hook, after: Hook) -> Callable[..., Any]:
        raised, failed = self.listener.raised, self.listener.failed

        def call(*arguments: Any, **named: Any) -> Any:
            if not self.is_on:
                return original(*arguments, **named)
            try:
                before(*arguments, **named)
            except Exception as error:
                if not failed(error):
                    raise
                return original(*arguments, **named)
            try:
                answer = original(*arguments, **named)
            except BaseException as error:
                raised(name, error, arguments)
                raise
            if self.is_on:
                try:
                    after(answer, *arguments, **named)
                except Exception as error:
                    if not failed(error):
                        raise
            return answer

        return call


@contextmanager
def counted_calls(owner: object, name: str) -> Iterator[list[str]]:
    """The calls of one method of ``owner`` while this is entered: its name, each time."""
    called: list[str] = []
    tap = Tap(Raises())
    tap.watch(owner, name, before=lambda *_arguments, **_named: called.append(name))
    try:
        yield called
    finally:
        tap.close()


def _own(owner: object, name: str) -> object:
    """What an object, or a class, itself has under a name; None if that comes from its class.

    An object's ``__dict__`` is not asked for: from then on every attribute of the object would take longer.
    """
    of_class = getattr(type(owner), name, None)
    if isinstance(owner, type) or of_class is None:
        return vars(owner).get(name)
    found = getattr(owner, name)
    if isinstance(found, MethodType) and found.__self__ is owner:
        return None if found.__func__ is of_class else found
    # A static function or a method of the class is the same from the object.
    return None if found is of_class or (isinstance(of_class, MethodType) and found == of_class) else found
