"""The releases of vLLM that the plug-in runs on: what each has itself, and what the plug-in rejects there.

The plug-in adds each feature that a release lacks and that is not rejected for it. The start, the doctor and the README
go by this table. A release that is not in it is rejected as a whole: the plug-in was not run on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from types import MappingProxyType

from attrs import evolve, field, frozen

from swa_retention.config import RETENTION as RETENTION_INTERVAL
from swa_retention.config import SCRATCH_FIRST, Configuration

RETENTION, MASKED, JUNCTIONS, SCRATCH = "retention", "masked caching", "junctions", "scratch first"
PINS, PARTIAL_HITS, COMPRESSED = "the pinned tier", "partial hits", "compressed groups"
FEATURES = (RETENTION, MASKED, JUNCTIONS, SCRATCH, PINS, PARTIAL_HITS, COMPRESSED)
"""All that can be switched on, as messages call it."""


@frozen
class Release:
    """One release of vLLM."""

    version: str
    native: Mapping[str, str] = field(default=MappingProxyType({}))
    """What it has itself, by feature: how that is switched on there."""
    refused: Mapping[str, str] = field(default=MappingProxyType({}))
    """What the plug-in does not do on it, by feature: why."""
    reads_interval: bool = False
    """Whether it reads the variable of the interval itself, and takes a number only."""

    def describe(self, feature: str) -> str:
        """What becomes of ``feature`` here, next to the vLLM-Ascend that is installed."""
        if feature in self.native:
            return f"native ({self.native[feature]})"
        why = self.refusal(feature)
        return "added" if why is None else f"rejected: {why}"

    def refusal(self, feature: str) -> str | None:
        """Why the plug-in does not do ``feature`` here, next to the vLLM-Ascend that is installed; None if it does."""
        if feature in self.refused:
            return self.refused[feature]
        ascend = ascend_version()
        if feature in self.native or ascend is None or ascend.startswith(ASCEND_SUPPORTED):
            return None
        return (
            f"vLLM-Ascend {ascend} has a coordinator, managers and a scheduler of its own, which are not those of "
            f"{ASCEND_SUPPORTED}1, for which the patches are written"
        )


_ALWAYS = "always on"
_ASCENDS_OWN = "the block sizes of DeepSeek-V4 are those of the layers of vLLM-Ascend 0.20.2rc1"

RELEASES = (
    Release("0.20.2"),
    Release("0.21.0"),
    Release("0.22.1", native={MASKED: _ALWAYS}),
    Release(
        "0.23.0",
        native={RETENTION: f"{RETENTION_INTERVAL}, a number, which vLLM reads", MASKED: _ALWAYS, SCRATCH: _ALWAYS},
        refused={
            JUNCTIONS: "its retention is vLLM's own, and keeps none; that of 0.33.0 does",
            COMPRESSED: _ASCENDS_OWN,
        },
        reads_interval=True,
    ),
    Release(
        "0.33.0",
        native={
            RETENTION: f"--prefix-cache-retention-interval, 0 by default; {RETENTION_INTERVAL} has no effect",
            MASKED: _ALWAYS,
            JUNCTIONS: "always on, with a retention interval",
            SCRATCH: _ALWAYS,
        },
        refused={
            PARTIAL_HITS: (
                "it has its own for Mamba layers in align mode alone; the plug-in's need copies by the first model "
                "runner, and 0.33.0 uses the second one by default"
            ),
            COMPRESSED: _ASCENDS_OWN,
        },
    ),
)
ASCEND_SUPPORTED = "0.20.2rc"
"""The vLLM-Ascend whose coordinator, managers and worker the patches are written for: its candidates."""
SUPPORTED = tuple(release.version for release in RELEASES)


def number(version: str) -> tuple[int, ...]:
    """A release as a number that can be compared."""
    return tuple(map(int, version.split(".")))


def running() -> str:
    """The version of the vLLM that this process has, without what a build adds to it."""
    from vllm import version

    return str(vars(version)["__version__"]).partition("+")[0]


def release_of(version: str) -> Release | None:
    """The row of ``version``, if it is in the table."""
    return next((release for release in RELEASES if release.version == version), None)


class UnsupportedError(RuntimeError):
    """The plug-in does not do here what is switched on."""


def check_release(configuration: Configuration) -> Release:
    """The row of the vLLM that this process has, if all that ``configuration`` names is there or can be added.

    Raises:
        UnsupportedError: it is not.
    """
    version = running()
    release = release_of(version)
    if release is None:
        raise UnsupportedError(
            f"swa_retention was not run on vLLM {version}, and has changed nothing: unset its switches, or install one "
            f"of {', '.join(SUPPORTED)}"
        )
    for what, why in refusals(configuration, release):
        raise UnsupportedError(f"swa_retention has no {what} on vLLM {version}, and has changed nothing: {why}")
    return release


def refusals(configuration: Configuration, release: Release) -> Iterator[tuple[str, str]]:
    """What of ``configuration`` there is not on ``release``, each with the reason."""
    reasons = ((feature, release.refusal(feature)) for feature in wanted(configuration))
    yield from ((feature, why) for feature, why in reasons if why is not None)
    if configuration.interval_is_auto and release.reads_interval:
        yield "interval auto", f"vLLM reads {RETENTION_INTERVAL} itself there, and takes a number only"


def ascend_version() -> str | None:
    """The version of vLLM-Ascend, if it is installed as a distribution."""
    try:
        return version_of("vllm-ascend")
    except PackageNotFoundError:
        return None


def wanted(configuration: Configuration) -> Iterator[str]:
    """The features that ``configuration`` names."""
    switches = {
        RETENTION: configuration.retention_interval_tokens is not None,
        MASKED: configuration.masked,
        SCRATCH: configuration.scratch_first is not None,
        PINS: configuration.pins,
        PARTIAL_HITS: configuration.partial_hits,
        COMPRESSED: configuration.compressed_block_size_slots is not None,
    }
    yield from (feature for feature, is_on in switches.items() if is_on)


def handed_over(configuration: Configuration, release: Release) -> Configuration:
    """What of ``configuration`` is left to the plug-in where the release does the rest."""
    if RETENTION in release.native:
        configuration = evolve(configuration, retention_interval_tokens=None, interval_is_auto=False, junctions=False)
    if MASKED in release.native:
        # vLLM's own mask keeps what hits of whole blocks read. The plug-in's keeps what partial hits read.
        configuration = evolve(configuration, masked=configuration.partial_hits)
    if SCRATCH in release.native:
        configuration = evolve(configuration, scratch_first=False)
    return configuration


def messages(configuration: Configuration, release: Release) -> Iterator[str]:
    """What the start says of the features that the release has itself."""
    for feature in wanted(configuration):
        if feature not in release.native:
            continue
        yield f"vLLM {release.version} has {feature} itself ({release.native[feature]})"
        if feature == RETENTION and JUNCTIONS in release.refused:
            yield f"no {JUNCTIONS} on vLLM {release.version}: {release.refused[JUNCTIONS]}"
        if feature == SCRATCH and not configuration.scratch_first:
            yield f"{SCRATCH_FIRST} has no effect on vLLM {release.version}"
