"""Attaching a shadow to the schedulers of a process, when they are built, and to nothing else."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any

from kvgate.kernel.shadow_switch import Mode, Switch, read
from kvgate.shadow.adapter.log import note, warn

SCHEDULER = "vllm.v1.core.sched.scheduler"
_MARK = "_kvgate_shadow"


def put_in_place() -> None:
    """Read the switch, and wait for vLLM's scheduler to be imported: in most processes that never happens.

    Raises:
        UsageError: a variable has a value that it cannot have.
    """
    switch = read()
    if switch is None:
        return
    from kvgate.shadow.adapter.counters import expose

    expose(switch.dir)
    if switch.worker and switch.mode is not Mode.RECORD:
        _watch_workers(switch)
    if SCHEDULER in sys.modules:
        watch_when_imported(sys.modules[SCHEDULER], switch)
    else:
        sys.meta_path.insert(0, _WhenImported(SCHEDULER, lambda module: watch_when_imported(module, switch)))


def _watch_workers(switch: Switch) -> None:
    """Wait for a model runner to be imported, and give those that are made a shadow."""
    from kvgate.shadow.adapter.model_runner import RUNNERS, watch_runners

    def watch(module: ModuleType) -> None:
        try:
            watch_runners(module, switch)
        except Exception as error:
            warn(f"of the worker is off: {module.__name__} is not as it was expected: {_describe_error(error)}")

    for name in RUNNERS:
        if name in sys.modules:
            watch(sys.modules[name])
        else:
            sys.meta_path.insert(0, _WhenImported(name, watch))


def watch_when_imported(module: ModuleType, switch: Switch) -> None:
    """The same as ``watch_schedulers``, in the middle of an import, which it must not break. Never raises."""
    try:
        watch_schedulers(module, switch)
    except Exception as error:
        warn(f"is off: {SCHEDULER} is not as it was expected: {_describe_error(error)}")


class _WhenImported(importlib.abc.MetaPathFinder):
    """Calls back when a module was imported, once."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._then(module)

            loader.exec_module = exec_module
        return spec


def watch_schedulers(module: ModuleType, switch: Switch) -> None:
    """Every scheduler that is built from now on has a shadow."""
    scheduler: Any = vars(module)["Scheduler"]
    original = scheduler.__init__
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def with_shadow(self: Any, *args: Any, **others: Any) -> None:
        original(self, *args, **others)
        attach(self, switch)

    setattr(with_shadow, _MARK, True)
    scheduler.__init__ = with_shadow


def attach(scheduler: Any, switch: Switch) -> Any:
    """Give one scheduler a shadow; None, and a line in the log, where that is not possible. Never raises."""
    sink: Any = None
    try:
        from kvgate.shadow.adapter.geometry import counts_in_flight, followed_release, settings_of, system_of
        from kvgate.shadow.adapter.observer import Observer
        from kvgate.shadow.adapter.sinks import sink_for
        from kvgate.shadow.sampling import Sampling

        release = followed_release(str(importlib.import_module("vllm").__version__))
        settings = settings_of(scheduler, release)
        index = int(getattr(scheduler.vllm_config.parallel_config, "data_parallel_index", 0) or 0)
        sink = sink_for(switch, settings, system_of(scheduler, release), type(scheduler).__name__, index)
        observer = Observer(
            scheduler,
            sink,
            lambda error: _end(switch, sink, error),
            checkpoint_calls=switch.checkpoint_calls,
            sampling=Sampling(switch.sample, switch.period_steps),
            stall_seconds=switch.stall_seconds,
            counts_in_flight=counts_in_flight(release, settings.geometry),
        )
    except Exception as error:
        warn(f"is off for this engine, which continues without it: {_describe_error(error)}")
        if sink is not None:
            with suppress(Exception):
                sink.close(wait=False)
        return None
    _end_with(observer, sink)
    note(f"{switch.mode.value}: {sink.describe()}")
    return observer


def _end_with(observer: Any, sink: Any) -> None:
    """End the shadow with its engine, however that ends; nothing of it outlives a scheduler that is deleted."""
    seen = weakref.ref(observer)

    def leave() -> None:
        known = seen()
        if known is not None:
            _leave(process, known, sink)

    process = os.getpid()
    # A forked engine does not run what is registered with atexit; this runs there, and in others.
    last = Finalize(None, leave, exitpriority=0)

    def forget() -> None:
        last.cancel()
        _close(sink)

    def shut_down() -> None:
        last.cancel()
        leave()

    try:
        observer.at_shutdown(shut_down)
    except Exception as error:
        warn(f"ends only with the process: {_describe_error(error)}")
    weakref.finalize(observer, forget).atexit = False


def _close(sink: Any) -> None:
    with suppress(Exception):
        sink.close(wait=False)


def _leave(process: int, observer: Any, sink: Any) -> None:
    if os.getpid() != process:
        # A process that was forked from the engine's: the channel is not its own.
        return
    try:
        observer.end()
        sink.close()
    except Exception as error:
        warn(f"ended with {_describe_error(error)}")


def _end(switch: Switch, sink: Any, error: BaseException) -> None:
    """Something went wrong in the shadow itself: it is off, and the engine as it was."""
    try:
        warn(f"ended, and the engine continues without it: {sink.why_closed(error)}")
        if switch.mode is not Mode.STRICT:
            # In the middle of a step the engine does not wait for what is still to be sent.
            sink.close(wait=False)
    except Exception as another:
        with suppress(Exception):
            warn(f"ended, and that failed too: {_describe_error(another)}")


def _describe_error(error: BaseException) -> str:
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
