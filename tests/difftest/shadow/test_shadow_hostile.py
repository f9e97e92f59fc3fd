"""A shadow for which everything goes wrong: the engine must not notice.

Goal: a failure in the shadow or around it raises nothing in the engine, removes no other wrapper, and costs time only
once. Method: break what the shadow relies on, one thing at a time, inside vLLM's own scheduler or without one.
"""

from __future__ import annotations

import gc
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define

from kvgate.adapters.tap import Tap
from kvgate.kernel.shadow_switch import Mode, Switch
from kvgate.shadow.adapter import attachment
from kvgate.shadow.channel import Channel
from kvgate.shadow.sink_protocol import Passive

CHECK = Switch(Mode.CHECK)


class Engine:
    """Something that is asked things."""

    def ask(self) -> str:
        return "asked"


class Watcher:
    """Watches one call, as a shadow does: its exception ends it, and does not reach the engine."""

    def __init__(self, engine: Engine, look: Any = lambda *_: None) -> None:
        self.tap = Tap(self)
        self.tap.watch(engine, "ask", after=look)

    def raised(self, name: str, error: BaseException, arguments: Any) -> None:
        """Nothing."""

    def failed(self, error: Exception) -> bool:
        del error
        self.tap.close()
        return True


def fails(*_args: Any, **_others: Any) -> Any:
    raise RuntimeError("on purpose")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before Python 3.11 every object has a dict")
def test_an_object_that_is_watched_stays_fast() -> None:
    """Goal: reading the engine's attributes stays as fast as before. Method: from 3.11 on an object gets a dict only
    when one is asked for; after that every read of an attribute takes longer.
    """
    engine = Engine()
    watcher = Watcher(engine)
    assert "asked" == engine.ask()
    watcher.tap.close()
    assert "asked" == engine.ask()
    assert [] == [each for each in gc.get_referents(engine) if isinstance(each, dict)]
    assert engine.__dict__ == {}
    assert [engine.__dict__] == [each for each in gc.get_referents(engine) if isinstance(each, dict)]


class OfClass:
    """Something with calls of each kind."""

    @staticmethod
    def fixed() -> str:
        return "fixed"

    @classmethod
    def common(cls) -> str:
        return cls.__name__

    def own(self) -> object:
        return self


def test_what_was_there_before_is_there_again() -> None:
    """Goal: a closed tap leaves nothing. Method: calls of a class, of an object, and of another object."""
    others = OfClass()
    patched, plain, bare = OfClass(), OfClass(), SimpleNamespace(ask=lambda: "asked")
    patched.own = others.own  # type: ignore[method-assign]  # What a user's own patch does.
    for owner, name in ((patched, "own"), (plain, "own"), (plain, "fixed"), (plain, "common"), (bare, "ask")):
        before, answer = dict(vars(owner)), getattr(owner, name)()
        tap = Watcher(Engine()).tap
        tap.watch(owner, name, after=lambda *_: None)
        assert vars(owner) != before
        assert answer == getattr(owner, name)()
        tap.close()
        assert (before, answer) == (vars(owner), getattr(owner, name)())


def test_what_others_put_on_top_stays() -> None:
    """Goal: later wrappers of a call stay. Method: another wrapper over the shadow's, and the shadow ends."""
    engine = Engine()
    watcher = Watcher(engine)
    below = engine.ask
    vars(engine)["ask"] = lambda: f"twice {below()}"
    watcher.tap.close()
    assert "twice asked" == engine.ask()


def test_what_others_put_below_comes_back() -> None:
    """Goal: the same for earlier wrappers."""
    engine = Engine()
    vars(engine)["ask"] = lambda: "before"
    Watcher(engine).tap.close()
    assert "before" == engine.ask()


def test_a_look_that_fails_beneath_another_wrapper_is_not_repeated() -> None:
    """Goal: a shadow that has ended does not look again, even where its wrapper cannot be removed. Method: count the
    looks.
    """
    engine, looks = Engine(), []

    def looks_and_fails(*_args: Any) -> None:
        looks.append(1)
        raise RuntimeError("on purpose")

    Watcher(engine, looks_and_fails)
    below = engine.ask
    vars(engine)["ask"] = lambda: below()
    assert ["asked"] * 3 == [engine.ask() for _ in range(3)]
    assert [1] == looks


def test_an_installation_that_lacks_something_does_not_stop_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a scheduler is built although modules are missing. Method: modules that cannot be imported."""
    for name in ("geometry", "observer", "sinks"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, f"kvgate.shadow.adapter.{name}", None)
            assert attachment.attach(object(), CHECK) is None


def test_a_vllm_without_a_scheduler_is_imported_all_the_same() -> None:
    """Goal: the hook never breaks an import. Method: a module that has no such class."""
    attachment.watch_when_imported(ModuleType("empty"), CHECK)


@define
class Broken:
    """A sink that fails when it is to end."""

    lost: int = 0
    is_immediate: bool = False

    def why_closed(self, error: BaseException) -> str:
        raise RuntimeError("on purpose") from error

    def close(self, wait: bool = True) -> None:
        fails(wait)


def test_an_end_that_fails_is_not_the_engines() -> None:
    """Goal: not even the last thing that the shadow does raises. Method: a sink that cannot be ended."""
    attachment._end(CHECK, Broken(), RuntimeError("first"))


@define
class Waits:
    """A sink that says how it was ended."""

    waited: list[bool]

    def why_closed(self, error: BaseException) -> str:
        return str(error)

    def close(self, wait: bool = True) -> None:
        self.waited.append(wait)


def test_the_engine_does_not_wait_for_a_shadow_that_failed() -> None:
    """Goal: within a step the engine does not wait for what is still to be sent. Method: a sink that must not wait."""
    sink = Waits([])
    attachment._end(CHECK, sink, RuntimeError("first"))
    assert [False] == sink.waited


SIGPIPE = """
import signal, socket
from kvgate.shadow.channel import Channel, ClosedError
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
ours, theirs = socket.socketpair()
channel = Channel(ours, 2**20)
theirs.close()
try:
    channel.send(b"somebody?")
except ClosedError:
    print("closed")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="no such signal here")
def test_a_sidecar_that_is_gone_does_not_end_the_engine(tmp_path: Path) -> None:
    """Goal: no signal. Method: an engine in which that signal ends the process, as it does outside of Python."""
    ended = subprocess.run([sys.executable, "-c", SIGPIPE], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (0, "closed") == (ended.returncode, ended.stdout.strip())


def test_a_backlog_is_not_sent_within_a_call() -> None:
    """Goal: a step of the engine waits for no megabytes. Method: much that waits, and an end that takes all at once."""
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel(ours, 2**26)
        channel._lock.acquire()  # No other thread sends.
        channel._socket = cast(Any, Takes())
        channel._waiting.append(memoryview(bytes(2**25)))
        channel._bytes = 2**25
        channel.flush()
        assert 2**25 - 2**20 == channel.bytes_waiting
        channel.send(bytes(10))
        assert 2**25 - 2**21 + 14 == channel.bytes_waiting
        channel._end()
        channel._lock.release()
        ours.close()


class Takes:
    """A socket with room for everything."""

    def send(self, view: memoryview, _flags: int = 0) -> int:
        return len(view)

    def close(self) -> None:
        """Nothing."""


@define
class Full(Passive):
    """A sink without room, which is ready for more."""

    takes: bool = False
    lost: int = 0
    is_immediate: bool = False
    begun: int = 0

    def ready(self) -> bool:
        return True

    def send(self, records: Any) -> None:
        self.begun += any(type(each).__name__ == "Restart" for each in records)
        self.lost += 0 if self.takes else len(records)


class TestBeneathAScheduler:
    """With vLLM's own scheduler."""

    @pytest.fixture
    def server(self) -> Any:
        pytest.importorskip("vllm")
        from .live import Server

        return Server("full")

    def test_what_is_too_large_to_report_is_not_reported_at_every_step(self, server: Any) -> None:
        """Goal: beginning again costs a small share of the time. Method: a sink that nothing fits into."""
        from kvgate.shadow.adapter.observer import Observer

        sink = Full()
        Observer(server.scheduler, sink, fails, share_of_time=10**9)
        server.serve(100)
        assert 1 == sink.begun

    def test_what_is_lost_is_a_gap_though_there_is_room_again(self, server: Any) -> None:
        """Goal: after a loss the recording begins again, with everything. Method: one message is not taken."""
        from kvgate.shadow.adapter.observer import Observer

        sink = Full(takes=True)
        Observer(server.scheduler, sink, fails, share_of_time=0)
        server.serve(20)
        sink.takes = False
        while not sink.lost:
            server.serve(1)
        sink.takes = True
        server.serve(20)
        assert (2, 0) == (sink.begun, sink.lost)

    def test_a_shadow_that_does_not_fit_is_not_left_in_halves(
        self, server: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Goal: a scheduler without one of the calls has no shadow. Method: take one away."""
        from kvgate.shadow.adapter.observer import Observer

        manager = server.scheduler.kv_cache_manager
        before = set(vars(manager))
        monkeypatch.delattr(type(manager), "new_step_starts")
        with pytest.raises(AttributeError):
            Observer(server.scheduler, Full(), fails)
        assert before == set(vars(manager))

    def test_what_a_checkpoint_takes_to_tell_counts_as_its_time(self, server: Any) -> None:
        """Goal: checkpoints stay a small share of the time. Method: a sink that needs long for one."""
        from kvgate.shadow.adapter.observer import Observer

        sink = Slow()
        observer = Observer(server.scheduler, sink, fails)
        assert observer._checkpoint_seconds >= 0.05
        before = observer._checkpoint_seconds
        sink.seconds = 0.2
        observer._emit_checkpoint()
        assert observer._checkpoint_seconds >= 0.2 > before

    def test_a_request_that_is_none_reaches_the_engine(self, server: Any) -> None:
        """Goal: even what is asked before the engine's own call raises nothing of its own. Method: a foreign object."""
        from kvgate.shadow.adapter.observer import Observer

        ended: list[BaseException] = []
        asked: list[object] = []
        manager = server.scheduler.kv_cache_manager
        vars(manager)["allocate_slots"] = lambda request, *_args, **_others: asked.append(request)
        Observer(server.scheduler, Full(takes=True), ended.append)
        foreign = object()
        assert manager.allocate_slots(foreign, 1) is None
        assert [foreign] == asked
        assert "AttributeError" == type(ended[0]).__name__


@define
class Slow(Passive):
    """A sink that takes its time."""

    seconds: float = 0.05
    lost: int = 0
    is_immediate: bool = False

    def ready(self) -> bool:
        return True

    def send(self, records: Any) -> None:
        del records
        time.sleep(self.seconds)
