"""Calls of one object that are looked at, on that object alone, and left as they were again.

The engine's own call is always made, and its answer is always what the engine gets. What goes wrong while something is
looked at ends the looking, and nothing else; only a difference in the mode strict is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kvgate.shadow.sink import DifferenceError


class Wrapping:
    """What is wrapped, and whether anybody looks.

    ``on_failure`` is told what went wrong in the shadow itself; then everything is as it was before.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self.on_failure = on_failure
        self.is_watching = False
        """Whether calls are looked at; if not, they are only passed on."""
        self._has_ended = False
        """Whether nothing is looked at ever again, wherever a wrapper could not be taken away."""
        self._replaced: list[tuple[object, str, object, object]] = []
        """What is wrapped: whose, its name, what stood there before on that object alone, and what stands there now."""

    def flush(self) -> None:
        """Tell what was seen."""

    def _replace(self, owner: object, name: str, value: Callable[..., Any]) -> None:
        self._replaced.append((owner, name, vars(owner).get(name), value))
        setattr(owner, name, value)

    def detach(self) -> None:
        """Everything is as it was before; but what others have put on top since stays, and passes calls on."""
        self.is_watching, self._has_ended = False, True
        for owner, name, before, now in reversed(self._replaced):
            if vars(owner).get(name) is not now:
                continue
            if before is None:
                vars(owner).pop(name, None)
            else:
                setattr(owner, name, before)
        self._replaced.clear()

    def _fail(self, error: BaseException) -> None:
        self.detach()
        self.on_failure(error)

    def _behind(self, original: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
        """The call, and behind it a look at its answer and its arguments."""

        def call(*args: Any, **others: Any) -> Any:
            try:
                answer = original(*args, **others)
            except Exception:
                self._last_words()
                raise
            if self.is_watching:
                try:
                    look(answer, *args, **others)
                except DifferenceError:
                    raise
                except Exception as error:
                    self._fail(error)
            return answer

        return call

    def _before(self, original: Callable[..., Any], look: Callable[[], None]) -> Callable[..., Any]:
        """A look, and behind it the call."""

        def call(*args: Any, **others: Any) -> Any:
            if self._has_ended:
                return original(*args, **others)
            try:
                look()
            except DifferenceError:
                raise
            except Exception as error:
                self._fail(error)
            return original(*args, **others)

        return call

    def _last_words(self) -> None:
        """The engine's own call raised: whatever was seen until then is told while there is time."""
        with suppress(Exception):
            self.flush()
