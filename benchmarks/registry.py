"""All benchmarks, by name, in the order in which they run: the quick ones first."""

from __future__ import annotations

from importlib import import_module

from attrs import frozen
from benchmarks.harness import Benchmark

from kvgate.kernel.errors import UsageError


@frozen
class Registered:
    """A benchmark, and where it is."""

    name: str
    module: str
    """Holds the function."""
    what: str
    """What it measures, in one line."""
    function: str = "rows"

    def load(self) -> Benchmark:
        """Its function, with all that it imports."""
        rows: Benchmark = getattr(import_module(self.module), self.function)
        return rows


BENCHMARKS = {
    each.name: each
    for each in (
        Registered("reference", "benchmarks.reference", "operations a second of the reference, by mechanism"),
        Registered("explore", "benchmarks.explore", "states a second of the explorer, by tiny model"),
        Registered("lockstep", "benchmarks.lockstep", "what lockstep and monitors cost, next to vLLM alone"),
        Registered("long_request", "benchmarks.long_request", "a request of 131,072 tokens in lockstep"),
        Registered("simulation", "benchmarks.simulation", "simulated tokens a second, by arm"),
        Registered("shared_prompt", "benchmarks.shared_prompt", "hit rates of a shared system prompt, by switch"),
        Registered("chats", "benchmarks.chats", "hit rates of chats of several turns on a real engine, by switch"),
        Registered("copying", "benchmarks.copying", "what the copies of partial hits cost a worker"),
        Registered("fuzz", "benchmarks.fuzz", "what a second worker adds to `kvgate fuzz`"),
        Registered("plugin", "benchmarks.plugin", "what the plug-in costs vLLM's block manager, by switch"),
        Registered("shadow_calls", "benchmarks.shadow_calls", "what a shadow costs in the engine, call by call"),
        Registered("shadow", "benchmarks.shadow", "what a shadow costs a live engine"),
        Registered("agreement", "benchmarks.agreement", "operations a second of the plug-in in lockstep, cell by cell"),
        Registered("branches", "benchmarks.vllm_coverage", "how many branches of vLLM's files the gate reaches"),
        Registered("headlines", "benchmarks.headlines.rows", "hit rates of published workloads, as simulated"),
    )
}


def chosen(names: list[str]) -> list[Registered]:
    """Those that are named; all without a name.

    Raises:
        UsageError: a name that there is not.
    """
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise UsageError(f"no benchmark {unknown[0]!r}: there are {', '.join(BENCHMARKS)}")
    return [each for name, each in BENCHMARKS.items() if not names or name in names]
