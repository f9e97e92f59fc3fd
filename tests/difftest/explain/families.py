"""Which groups ``kvgate explain`` reads out of a ``config.json``, next to those that each release of vLLM makes of it.

    python -m tests.difftest.explain.families

writes ``difftest/families.md`` and its rows, ``families.csv``, from ``configs`` and from ``asked.json``, which has the
releases' answers. To ask them again, each in a process of its own, and to write that file:

    python -m tests.difftest.explain.families --ask [VERSION…]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from attrs import frozen

from kvgate.adapters.fetching import fetch
from kvgate.adapters.releases import INSTALLED, RELEASES
from kvgate.explain.layers import Placed
from kvgate.explain.load import load
from kvgate.explain.serving import Serving
from kvgate.kernel.data_file import csv_text, write_both
from kvgate.kernel.errors import UsageError
from kvgate.kernel.versions import version_of

CONFIGS = Path(__file__).parent / "configs"
ASKED = Path(__file__).parent / "asked.json"
PAGE = Path(__file__).parents[3] / "difftest" / "families.md"
NAMES = sorted(path.name for path in CONFIGS.iterdir())
REFUSED = "refused: "
REFUSED_CHARACTERS_MAX = 160
SECONDS_MAX = 1800
VERSIONS = tuple(
    sorted({each.version for each in (INSTALLED, *RELEASES.values()) if each.package == "vllm"}, key=version_of)
)
"""The releases that the gate describes."""

Answers: TypeAlias = dict[str, dict[str, list[str]]]
"""By configuration: each answer, and the releases that gave it."""


def in_words(groups: Sequence[Mapping[str, Any]]) -> str:
    """All that is compared of the groups of a dump, in order; equal ones in a row are one."""

    def words(group: Mapping[str, Any]) -> str:
        states, drafts, window = group.get("states"), group.get("draft_states"), group.get("window_tokens")
        kind = " ".join(filter(None, (group["kind"], states, f"and {drafts} drafts" if drafts else "")))
        of = f"{group['block_size_tokens']:,}" + ("" if window is None else f", window {window:,}")
        return f"{kind} of {of} ({group['layers']} layers)"

    runs = [(text, len(list(run))) for text, run in groupby(map(words, groups))]
    return "; ".join(f"{times} x {text}" if times > 1 else text for text, times in runs)


def flags_of(name: str) -> dict[str, Any]:
    """The serving flags of a configuration."""
    path = CONFIGS / name / "flags.json"
    flags: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return flags


def ours(name: str, version: str) -> str:
    """The groups that kvgate reads out of a configuration for a release."""
    try:
        layout = load(str(CONFIGS / name), Serving(version=version, **flags_of(name)))
    except UsageError as error:
        return f"{REFUSED}{error}"
    return in_words([_as_in_a_dump(placed) for placed in layout.groups])


def _as_in_a_dump(placed: Placed) -> dict[str, Any]:
    group, states = placed.group, placed.group.states
    named = {"kind": group.kind.value, "block_size_tokens": group.block_size_tokens, "layers": placed.layers}
    kept = {"states": states and states.value, "draft_states": group.draft_states}
    return {**named, **kept, "window_tokens": group.window_tokens}


def theirs(answer: Mapping[str, Any]) -> str:
    """The same of what vLLM says."""
    if "refused" in answer:
        why: str = answer["refused"]
        return REFUSED + " ".join(why.split())[:REFUSED_CHARACTERS_MAX]
    return in_words(answer["groups"])


def asked() -> Answers:
    """The stored answers of the releases."""
    found: Answers = json.loads(ASKED.read_text(encoding="utf-8"))
    return found


def ask(version: str, names: Sequence[str] = NAMES) -> dict[str, str]:
    """Ask one release for the groups of configurations."""
    environment = dict(os.environ)
    if version != INSTALLED.version:
        release = next(each for each in RELEASES.values() if (each.package, each.version) == ("vllm", version))
        environment["PYTHONPATH"] = os.pathsep.join([str(fetch(release)), *sys.path[1:]])
    command = (sys.executable, "-m", "kvgate.adapters.kv_cache_groups", *(str(CONFIGS / name) for name in names))
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    lines = (line.partition("kvgate {") for line in ran.stdout.splitlines())
    answers = [json.loads("{" + said) for _before, found, said in lines if found]
    if len(answers) != len(names):
        raise SystemExit(f"vLLM {version}: {len(answers)} of {len(names)} answers: {ran.stderr[-2000:]}")
    return {answer["folder"]: theirs(answer) for answer in answers}


def merged(answers: Answers, version: str, said: Mapping[str, str]) -> Answers:
    """The answers, with those of one release replaced."""
    found: Answers = {}
    for name in NAMES:
        before = {
            text: [each for each in said_by if each != version] for text, said_by in answers.get(name, {}).items()
        }
        before.setdefault(said[name], []).append(version)
        found[name] = {text: sorted(said_by, key=version_of) for text, said_by in sorted(before.items()) if said_by}
    return found


KNOWN = {"qwen2-moe": ("0.16.0", "0.17.1", "0.18.1")}
"""The configurations that differ, in which releases."""
CAUSES = {
    "qwen2-moe": "These releases make a window of 0 tokens of a window that is not used. An assumption, not tried: "
    "because they run here with another release of Transformers than they were published with."
}
"""The differences by configuration, with their reason."""
REFUSED_BY_KVGATE = {
    **dict.fromkeys(("gemma4", "gemma4-shares"), ("0.16.0", "0.17.1", "0.18.1")),
    **dict.fromkeys(("minimax", "minimax-cached"), ("0.27.1",)),
}
"""The configurations that vLLM makes groups of and kvgate does not read, in which releases."""


@frozen
class Row:
    """One configuration."""

    name: str
    family: str
    checkpoint: str
    """The published checkpoint whose values these are; empty if they are made up."""
    equal: tuple[str, ...]
    """The releases that make the groups that kvgate reads."""
    different: tuple[str, ...]
    refused: Mapping[str, tuple[str, ...]]
    """By why a release makes none of it here, which."""
    not_read: Mapping[str, tuple[str, ...]]
    """By kvgate's message, the releases that make groups of it, for which kvgate does not read it."""
    groups: Mapping[str, tuple[str, ...]]
    """By the groups that vLLM makes, in which releases."""


def rows() -> list[Row]:
    """All configurations, by family."""
    answers = asked()
    return sorted((_row(name, answers.get(name, {})) for name in NAMES), key=lambda row: (row.family, row.name))


def _row(name: str, answers: Mapping[str, Sequence[str]]) -> Row:
    document = json.loads((CONFIGS / name / "config.json").read_text(encoding="utf-8"))
    made = {text: tuple(said_by) for text, said_by in answers.items() if not text.startswith(REFUSED)}
    refused = {text.removeprefix(REFUSED): tuple(said_by) for text, said_by in answers.items() if text not in made}
    read = {version: ours(name, version) for said_by in made.values() for version in said_by}
    not_read: dict[str, tuple[str, ...]] = {}
    for version in (each for each in VERSIONS if read.get(each, "").startswith(REFUSED)):
        message = (
            read[version]
            .removeprefix(REFUSED)
            .removeprefix(f"{CONFIGS / name / 'config.json'}: ")
            .replace(version, "VERSION")
        )
        not_read[message] = (*not_read.get(message, ()), version)
    refused_by_us = {version for versions in not_read.values() for version in versions}
    made = {
        text: tuple(version for version in said_by if version not in refused_by_us) for text, said_by in made.items()
    }
    made = {text: said_by for text, said_by in made.items() if said_by}
    alike = {version for text, said_by in made.items() for version in said_by if read[version] == text}
    every = [version for version in VERSIONS if any(version in said_by for said_by in made.values())]
    return Row(
        name,
        document.get("text_config", document)["model_type"],
        document.get("_name_or_path", ""),
        tuple(version for version in every if version in alike),
        tuple(version for version in every if version not in alike),
        refused,
        not_read,
        made,
    )


HEAD = """# Families of models: the groups of their cache, and whether vLLM makes the same

[families.csv](families.csv) has a row for each `config.json` in `tests/difftest/explain/configs`. A configuration with
a *checkpoint* has the values of this published model in all that decides about the cache; one without is made up.
*Groups* are those that vLLM makes: it builds the model without weights on a CPU, with the block sizes of attention on a
GPU, and its own functions make groups of what its layers say. *Equal* are the releases whose groups are those that
`kvgate explain --vllm-version` reads out of the file, with all blocks, windows and layers, in order. *kvgate refuses*
and *not compared* name the releases of which kvgate, or the release, makes no groups here, with its message.

Latent attention is asked with the back-end FlashMLA, as on a GPU of the Hopper generation, whose blocks have 64 tokens.
DeepSeek-V4 is not in the table: no CPU builds it, and its layers are asked one by one
(`tests/difftest/explain/test_groups_vllm.py`). Draft layers are not asked.

Written by `python -m tests.difftest.explain.families`. What the releases said is in
`tests/difftest/explain/asked.json`; `--ask` asks them again.
"""
COLUMNS = (
    *("family", "configuration", "checkpoint", "groups", "equal", "different", "why different"),
    *("kvgate refuses", "not compared"),
)


def page(found: Sequence[Row]) -> str:
    """What the rows come to."""
    families = {row.family for row in found if row.equal}
    return (
        f"{HEAD}\n{len(found)} configurations of {len(families)} families, "
        f"{sum(bool(row.checkpoint) for row in found)} with the values of a published checkpoint. Of the answers of "
        f"{len(VERSIONS)} releases {sum(len(row.equal) for row in found)} are equal, "
        f"{sum(len(row.different) for row in found)} are not, {_times(row.not_read for row in found)} times kvgate "
        f"refuses and vLLM does not, and {_times(row.refused for row in found)} times a release makes none here.\n"
    )


def data(found: Sequence[Row]) -> str:
    """The data file."""
    return csv_text(COLUMNS, map(_cells, found))


def _cells(row: Row) -> tuple[str, ...]:
    groups = "; or ".join(_with_releases(text, said_by, row) for text, said_by in row.groups.items())
    why = CAUSES.get(row.name, "the cause is not known.") if row.different else ""
    not_read = "; ".join(f"{spans(versions)}: {message}" for message, versions in row.not_read.items())
    refused = "; ".join(f"{spans(said_by)}: {reason.rstrip()}" for reason, said_by in row.refused.items())
    return row.family, row.name, row.checkpoint, groups, spans(row.equal), spans(row.different), why, not_read, refused


def _times(found: Iterable[Mapping[str, Sequence[str]]]) -> int:
    return sum(len(versions) for reasons in found for versions in reasons.values())


def _with_releases(text: str, said_by: Sequence[str], row: Row) -> str:
    return text if len(row.groups) == 1 else f"{spans(said_by)}: {text}"


def spans(versions: Sequence[str]) -> str:
    """Releases in a row, as from the first to the last."""
    places = [VERSIONS.index(version) for version in versions]
    runs = (list(run) for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0]))
    return ", ".join(_span([VERSIONS[place] for _, place in run]) for run in runs)


def _span(run: Sequence[str]) -> str:
    return run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}"


def _versions(words: Sequence[str]) -> Iterator[str]:
    for word in words or VERSIONS:
        if word not in VERSIONS:
            raise SystemExit(f"{word}: the gate describes {', '.join(VERSIONS)}")
        yield word


def main(words: list[str]) -> None:
    """Write the table, or ask."""
    if words[:1] != ["--ask"]:
        found = rows()
        write_both(PAGE, page(found), data(found))
        return
    answers = asked() if ASKED.is_file() else {}
    for version in _versions(words[1:]):
        answers = merged(answers, version, ask(version))
        ASKED.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"vLLM {version}: asked", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
