"""The arm ``release``: the reference with what a release of vLLM decides by design, and with its findings."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases import INSTALLED, release_described
from kvgate.adapters.releases.description import Release
from kvgate.adapters.retention import needs_plug_in
from kvgate.findings.modelled import Modelled, reference_of_release
from kvgate.kernel.errors import UsageError
from kvgate.simulation.arm import Progress, Setting
from kvgate.simulation.reference import CountingManager, ReferenceRun
from kvgate.simulation.result import Result


def served_by(setting: Setting) -> tuple[Release, bool]:
    """The release of a setting, and whether it needs the plug-in for the policy.

    Raises:
        UsageError: the version is not known, or it cannot have the policy.
    """
    release, settings = release_described(setting.serving.version), setting.settings
    interval = settings.retention_interval_tokens
    is_sparse = interval is not None and interval != settings.geometry.alignment_tokens
    try:
        if release.pins_junctions and is_sparse and not settings.keeps_junctions:
            raise ValueError(f"junctions left out: vLLM {release.version} always keeps them (+junctions)")
        return release, needs_plug_in(release, settings)
    except ValueError as error:
        raise UsageError(f"policy {setting.policy.name!r}: {error}") from error


def system_of(release: Release, has_plug_in: bool) -> str:
    """Its name, as for ``kvgate check --sut``."""
    if release is INSTALLED:
        return "retention" if has_plug_in else "stock"
    return f"retention@{release.version}" if has_plug_in else release.name


class ReleaseRun(ReferenceRun):
    """One simulation."""

    known: Modelled

    def new_manager(self) -> CountingManager:
        release, has_plug_in = served_by(self.setting)
        settings = self.setting.settings
        manager, self.known = reference_of_release(release, settings, has_plug_in, True, CountingManager)
        return manager


class ReleaseArm:
    """The reference, as the release is."""

    name = "release"

    def run(self, setting: Setting, progress: Progress | None = None) -> Result:
        """Serve the whole workload."""
        release, has_plug_in = served_by(setting)
        run = ReleaseRun(setting, self.name)
        run.ledger.system = system_of(release, has_plug_in)
        found = run.finish(progress)
        return evolve(found, choices=release.choices, findings=tuple(sorted(run.known.times.items())))


def arm() -> ReleaseArm:
    """What ``--arm release`` serves with."""
    return ReleaseArm()
