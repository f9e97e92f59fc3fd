"""The one call for a KV connector: is what it stores and loads what vLLM's requests read?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from kvgate.adapters.registry import load_system
from kvgate.conformance.capabilities import Capabilities
from kvgate.conformance.report import Report
from kvgate.gate.campaign import Campaign
from kvgate.gate.fault import fault_of
from kvgate.gate.level import LevelChoice
from kvgate.gate.profiles import PROFILES, models_named
from kvgate.gate.verdict import Verdict
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.kernel.text import printable
from kvgate.levels.registry import prepare
from kvgate.levels.tiers.adapter.own import LOADS, WAITING_LOADS, Chosen, not_seen
from kvgate.levels.tiers.level import OWN_SYSTEMS, TIERS, with_connector
from kvgate.levels.tiers.operations import NAME_CHARACTERS_MAX

NOT_TESTED = (
    "Devices and several workers: its tensors are of the CPU, one for all layers, and one worker has them.",
    "Whether transfers of its own threads overlap with steps: steps take no time.",
    "Models that it was not run on, and what the block manager decides: no reference follows (--level scheduler).",
    "What it keeps on its own side when all requests are gone.",
)


def check_connector(
    connector: str,
    config: Mapping[str, Any] | None = None,
    *,
    system: str = "native@0.33.0",
    models: Sequence[str] = ("full+scratch",),
    profile: str = "quick",
    seed: int = 0,
    seconds: float | None = None,
    operations: int | None = None,
) -> Report:
    """Run a connector under a release's scheduler, on tensors of the CPU, and say whether every read is right.

    Args:
        connector: Its class, MODULE:CLASS, a subclass of that release's ``KVConnectorBase_V1``.
        config: Its ``kv_connector_extra_config``.
        system: Whose scheduler; a process has one.
        models: Names of models, or JSON files.
        profile: How much.
        seed: What every case follows from.
        seconds: A time budget.
        operations: How many operations of the block manager at least, instead of what the profile says.

    What goes wrong is in the report: also an argument that is wrong, and a connector that cannot be imported or built.
    """
    called = printable(str(connector), NAME_CHARACTERS_MAX)
    about = f"connector {called}, configured with {printable(repr(config or {}))}"
    nothing = Verdict(printable(str(system)), "unknown", profile, seed, TIERS.gate, models=(about,))

    def reported(verdict: Verdict, **more: Any) -> Report:
        return Report(verdict, Capabilities(), left_out=(*not_seen(), *NOT_TESTED), **more)

    try:
        _see_arguments(connector, config, system, models, profile, seconds, operations)
        loaded = load_system(system)
        (prepared,) = prepare(LevelChoice.TIERS, loaded, models_named(models), profile, seed=seed, seconds=seconds)
        prepared = with_connector(prepared, connector, config)
        plan = evolve(prepared.plan, operations=operations or prepared.plan.operations)
        outcome = Campaign(prepared.trials, plan).run()
        verdict = evolve(outcome.of(nothing), version=loaded.version)
        if not verdict.found and not (Chosen.seen[LOADS] or Chosen.seen[WAITING_LOADS]):
            return reported(verdict, error=f"the connector brought nothing in {verdict.operations:,} operations")
        return reported(verdict)
    except (UsageError, SystemUnavailableError) as error:
        return reported(nothing, error=str(error))
    except Exception as error:
        fault = fault_of(error)
        return reported(nothing, error=f"kvgate itself failed: {fault.raised}, {fault.doing}", failed=True)


def _see_arguments(
    connector: object,
    config: object,
    system: object,
    models: object,
    profile: object,
    seconds: object,
    operations: object,
) -> None:
    """Reject what cannot be meant, before anything is loaded.

    Raises:
        UsageError: which argument, and what it may be.
    """
    if not isinstance(connector, str) or not all(connector.partition(":")):
        raise UsageError(f"connector: write MODULE:CLASS, not {printable(repr(connector), NAME_CHARACTERS_MAX)}")
    if config is not None and not isinstance(config, Mapping):
        raise UsageError(f"config: a mapping, not {type(config).__name__}")
    if system not in OWN_SYSTEMS:
        raise UsageError(f"system: one of {', '.join(OWN_SYSTEMS)}, not {printable(repr(system), NAME_CHARACTERS_MAX)}")
    if isinstance(models, str) or not isinstance(models, Sequence) or not models:
        raise UsageError("models: a list of names, of which there is at least one")
    if profile not in PROFILES:
        raise UsageError(f"profile: one of {', '.join(PROFILES)}, not {printable(repr(profile), NAME_CHARACTERS_MAX)}")
    for name, number in (("seconds", seconds), ("operations", operations)):
        if number is not None and (not isinstance(number, int | float) or isinstance(number, bool) or not number > 0):
            raise UsageError(f"{name}: more than 0, not {printable(repr(number), NAME_CHARACTERS_MAX)}")
