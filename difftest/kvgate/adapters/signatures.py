"""Whether a vLLM is the one that its description was written for: the parameters of every symbol that the gate uses.

A vLLM whose symbols differ is rejected with a message that names the first symbol that differs, instead of being driven
wrongly. ``python -m kvgate.adapters.signatures native@VERSION`` prints what a release's file lacks; with a folder that
holds the unpacked wheel of an unknown release, it prints a draft of its file.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvgate.adapters.fetching import enter_version, fetch
from kvgate.adapters.releases import NEWEST, RELEASES, release_named
from kvgate.adapters.releases.description import Release, Signatures
from kvgate.kernel.errors import UsageError


def drift(expected: Signatures) -> list[str]:
    """What differs between the vLLM that is found and the described one, a sentence each.

    Raises:
        ImportError: a module is there and cannot be imported, or their package is not there at all.
    """
    sentences = []
    for path, found in changed(expected).items():
        if found is None:
            sentences.append(f"{path} is not there")
        elif expected[path] is None:
            sentences.append(f"{path} is there, and the description says that it is not")
        else:
            sentences.append(f"{path} takes ({found}), and the description says ({expected[path]})")
    return sentences


def changed(expected: Signatures) -> Signatures:
    """The symbols of ``expected`` that differ in the vLLM that is found, as they are there."""
    found = {path: parameters_of(path) for path in expected}
    return {path: parameters for path, parameters in found.items() if parameters != expected[path]}


def parameters_of(path: str) -> str | None:
    """The names of the parameters of ``module:symbol``; None if it is not there.

    Raises:
        ImportError: its module is there and cannot be imported, or its package is not there at all.
    """
    module, _, symbol = path.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in symbol.split("."):
            value = getattr(value, part)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError):
            # A missing package has no symbols to list, and a module's own dependency is not part of it.
            package = module.partition(".")[0]
            if error.name == package or not f"{module}.".startswith(f"{error.name}."):
                raise
        return None
    return ", ".join(inspect.signature(value).parameters)


def missing_from(release: Release) -> Iterator[str]:
    """What the file of a release still lacks, or has wrong, for the vLLM in this process."""
    if not release.wheels:
        yield "wheels: the sha256 of each published wheel"
    for difference in drift(release.signatures):
        yield f"signatures: {difference}"
    if release.scheduler is None:
        yield "scheduler: rules for its scheduler, without which kvgate check --level scheduler cannot run it"
    else:
        for difference in drift(release.scheduler.signatures):
            yield f"scheduler signatures: {difference}"


def draft(version: str, previous: Release) -> str:
    """A draft of the file of an unknown release, the vLLM in this process, from its signatures."""
    of_vllm = (each for each in reversed([*RELEASES.values()]) if each.system == previous.system)
    scheduled, rules = next((each, each.scheduler) for each in of_vllm if each.scheduler is not None)
    return f'''"""vLLM {version}: what it does differently, in a sentence."""
# For difftest/kvgate/adapters/releases/{_module(version)}.py, and the list in releases/__init__.py. Other fields change
# where kvgate check --sut native@{version} says so.

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.{_module(previous.version)} import RELEASE as OLDER
from kvgate.adapters.releases.{_module(scheduled.version)} import SCHEDULER_RULES as OLDER_SCHEDULER

SCHEDULER_RULES = evolve(
    OLDER_SCHEDULER,
    signatures={{
        **OLDER_SCHEDULER.signatures,
{_lines(changed(rules.signatures))}    }},
)

RELEASE = evolve(
    OLDER,
    version="{version}",
    wheels={{}},  # the sha256 of each published wheel, by machine
    signatures={{
        **OLDER.signatures,
{_lines(changed(previous.signatures))}    }},
    findings=frozenset(),  # those that kvgate check reproduces on it
    scheduler=SCHEDULER_RULES,  # or None until kvgate check --level scheduler agrees
)'''


def _module(version: str) -> str:
    return f"v{version.replace('.', '_')}"


def _lines(signatures: Signatures) -> str:
    return "".join(f"        {path!r}: {names!r},\n" for path, names in signatures.items())


def main(name: str) -> None:
    """Print what the file of a release lacks, or a draft of the file of the release in a folder."""
    folder = Path(name)
    if not (folder / "vllm").is_dir():
        release = release_named(name)
        enter_version(fetch(release), release.name)
        found = list(missing_from(release))
        print("\n".join(found) if found else f"{release.name}: nothing is missing")
        return
    enter_version(folder.resolve(), name)
    version = next((each.stem.partition("-")[2] for each in folder.glob("vllm*.dist-info")), "VERSION")
    print(draft(version, RELEASES[NEWEST]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("name", help="a release, such as native@0.33.0, or a folder that holds vllm")
    try:
        main(parser.parse_args().name)
    except UsageError as error:
        parser.error(str(error))
