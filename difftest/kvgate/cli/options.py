"""The options that several subcommands share, in one place."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kvgate.kernel.output import Format, TableFormat


class ProfileName(str, Enum):
    """How much is run."""

    PRECOMMIT = "precommit"
    QUICK = "quick"
    CI = "ci"
    DEEP = "deep"


def _system_named(name: str) -> str:
    """What ``installed`` stands for; releases that are described for stored cases only are rejected."""
    from kvgate.adapters.releases import RELEASES, STORED, VLLM_VERSION, system_installed

    name = system_installed() if name == "installed" else name
    if name in STORED or (name in RELEASES and RELEASES[name].scheduler is None):
        raise typer.BadParameter(
            f"{name} is described for what is stored (kvgate replay, kvgate corpus) and for kvgate explain: cases are "
            f"drawn for vLLM from {VLLM_VERSION} on"
        )
    return name


Sut: TypeAlias = Annotated[
    str,
    typer.Option(
        "--sut",
        metavar="NAME",
        callback=_system_named,
        help="The system under test: installed (the vLLM that is here), stock (the same, if it is 0.20.2), retention "
        "(with the plug-in), ascend, ascend-retention and ascend-recompute (vLLM-Ascend's managers), native@VERSION "
        "(another release of vLLM; kvgate fetch --list), reference, or module:factory.",
    ),
]
Preloads: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--preload",
        metavar="FILE.py",
        help="Run a Python file before the system is built, to test a patch. May be given several times.",
    ),
]
Models: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME|FILE",
        help="A model preset (NAME+eagle for a draft layer in every group) or a JSON file of groups; for check, a "
        "config.json too, with the flags that it is served with after --. May be given several "
        "times. Default: four published models and one with mixed block sizes, each with and without EAGLE, and "
        "models of the system's other mechanisms: chunks, states, transfers.",
    ),
]
Seed: TypeAlias = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="The seed that every case follows from.")
]
ReportDirectory: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="DIR",
        help="Write all reports, and a reproducer and a page for each divergence, to DIR; index.html leads to them.",
    ),
]
OutputFormat: TypeAlias = Annotated[Format, typer.Option("--format", help="What is printed to standard output.")]
TableOutput: TypeAlias = Annotated[TableFormat, typer.Option("--format", help="What is printed to standard output.")]
MonitorsOnly: TypeAlias = Annotated[
    bool, typer.Option("--monitors-only", help="Check by the monitors alone, without the reference.")
]
Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--jobs", metavar="N", min=1, help="How many processes work side by side. Default: one for each core."
    ),
]
OwnConnector: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--connector",
        metavar="NAME",
        help="Of a case with a KV connector of your own: MODULE:CLASS. It is configured as the trace says.",
    ),
]
VllmPath: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--vllm-path",
        metavar="DIR",
        help="A checkout of vLLM: its Python files come before those of the release that --sut names, whose compiled "
        "parts stay.",
    ),
]
Diff: TypeAlias = Annotated[
    Path | None, typer.Option("--diff", metavar="FILE", help="Apply a diff to the release that --sut names.")
]
