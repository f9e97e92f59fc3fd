"""A vLLM plug-in that is made on the fly: what must be done in every process of a server, before its engine is built.

vLLM looks for plug-ins among the installed packages, so a folder with a package's metadata, in front of the others on
the path, is one. It repairs what the CPU build lacks, injects mutants, and runs files, as ``--preload`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from kvgate.adapters.releases import VLLM_VERSION
from kvgate.kernel.errors import UsageError
from kvgate.kernel.extras import from_a_clone

NAME = "kvgate_plugged"
_MODULE = '''"""Written by kvgate for one server."""

MUTANTS = {mutants!r}
FILES = {files!r}
_injected = []


def register():
    from kvgate.adapters.cpu_engine.plugged import put_in_place

    if not _injected:
        _injected.append(put_in_place(MUTANTS, FILES))
'''


def write_plug_in(folder: Path, mutants: Sequence[str] = (), files: Sequence[Path] = ()) -> Path:
    """Write the plug-in into ``folder``, to be added to ``PYTHONPATH``; ``VLLM_PLUGINS`` must name it: ``NAME``."""
    if _is_unknown("vllm"):
        # The CPU build is installed under another name, and its command looks for this one; CPUs are known by its end.
        _write_metadata(folder, "vllm", f"{VLLM_VERSION}+cpu")
    metadata = _write_metadata(folder, NAME, "1")
    (metadata / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{NAME} = {NAME}:register\n")
    module = _MODULE.format(mutants=tuple(mutants), files=tuple(str(file.resolve()) for file in files))
    (folder / f"{NAME}.py").write_text(module)
    return folder


def _is_unknown(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return True
    return False


def _write_metadata(folder: Path, name: str, number: str) -> Path:
    metadata = folder / f"{name}-{number}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    return metadata


def put_in_place(mutants: Sequence[str], files: Sequence[str]) -> object:
    """Repair this process's vLLM, inject ``mutants`` into it for good, and run ``files``; keep what is returned.

    Raises:
        UsageError: a mutant or a file that is not there, or a file that raises.
    """
    from contextlib import ExitStack

    from kvgate.adapters.cpu_engine.repairs import repair
    from kvgate.adapters.registry import run_preload

    chosen = mutants_named(mutants)
    repair()
    faults = ExitStack()
    for mutant in chosen:
        faults.enter_context(mutant.applied())
    for index, file in enumerate(files):
        run_preload(Path(file), index)
    return faults


def mutants_named(names: Sequence[str]) -> Sequence[Any]:
    """The mutants of vLLM's block manager with these names; kvgate-mutants brings them.

    Raises:
        UsageError: the mutant is unknown, or kvgate-mutants is not installed.
    """
    if not names:
        return ()
    found = tuple(entry_points(group="kvgate.mutants", name="named"))
    if not found:
        raise UsageError(f"mutants come with kvgate-mutants, which is not installed: {from_a_clone('', 'mutants')}")
    return found[0].load()(names)  # type: ignore[no-any-return]  # an entry point
