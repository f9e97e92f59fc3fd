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
from kvgate.gate.profiles import models_named
from kvgate.gate.verdict import Verdict
from kvgate.kernel.errors import SystemUnavailableError, UsageError
from kvgate.levels.registry import prepare
from kvgate.levels.tiers.level import TIERS, with_connector


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

    What goes wrong is in the report, a connector that cannot be imported or built among it.
    """
    nothing = Verdict(connector, system, profile, seed, TIERS.gate)
    try:
        loaded = load_system(system)
        (prepared,) = prepare(LevelChoice.TIERS, loaded, models_named(models), profile, seed=seed, seconds=seconds)
        prepared = with_connector(prepared, connector, config)
        plan = evolve(prepared.plan, operations=operations or prepared.plan.operations)
        outcome = Campaign(prepared.trials, plan).run()
        return Report(outcome.of(nothing), Capabilities())
    except (UsageError, SystemUnavailableError) as error:
        return Report(nothing, Capabilities(), error=str(error))
    except Exception as error:
        fault = fault_of(error)
        return Report(
            nothing, Capabilities(), error=f"kvgate itself failed: {fault.raised}, {fault.doing}", failed=True
        )
