"""``kvgate --version``: what a report of a defect has to name, in one line."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer


def _tell(asked: bool) -> None:
    if not asked:
        return
    from kvgate.doctor.facts import gather

    facts = gather()
    found = (("kvgate", facts.installed.get("kvgate")), ("vLLM", facts.vllm), ("z3", facts.installed.get("z3-solver")))
    typer.echo(", ".join(f"no {name}" if version is None else f"{name} {version}" for name, version in found))
    raise typer.Exit


Version: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--version", callback=_tell, is_eager=True, help="Say which kvgate, vLLM and z3 are installed, and end."
    ),
]
