"""vLLM-Ascend's own unit tests of KV cache, block table, worker and scheduler: a table of results, with causes.

They are run from its published source archive on its published modules, on a CPU, with the plug-in off and on. Those of
later releases run on the vLLM that they belong to, without the plug-in, which is for vLLM 0.20.2. The table is in
``ASCEND.md``: ``python -m tests.impl.upstream.ascend > tests/impl/upstream/ASCEND.md`` writes it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from attrs import frozen

from kvgate.adapters.ascend_wheel import PACKAGE, ascend_folder
from kvgate.adapters.fetching import fetch
from kvgate.adapters.releases import ASCEND, LATER_ASCEND, release_named
from kvgate.adapters.releases.description import Release

from .archive import ascend_archive, ascend_needs
from .in_place import outcome_of, run_tests
from .tables import STAND_INS

PAGE = Path(__file__).with_name("ASCEND.md")
COMMAND = "python -m tests.impl.upstream.ascend > tests/impl/upstream/ASCEND.md"
RUN = ("tests/ut/core", "tests/ut/worker")
RUN_LATER = (*RUN, "tests/ut/test_compressed_prefix_cache.py")
NOT_RUN = {
    "tests/ut/attention": "attention kernels, most of which need the device",
    "tests/ut/distributed": "transfers and the pool of KV cache in other memories; mocks vLLM itself",
    "tests/ut/kv_connector": "transfers between nodes; waits for peers",
}
"""Folders that have to do with the KV cache, and are left out."""
SWITCHES = {
    "VLLM_ASCEND_DSV4_COMPRESSED_KV_BLOCK_SIZE": "128",
    "VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "0",
    "VLLM_PREFIX_CACHE_PARTIAL_HITS": "1",
}
"""The switches that are on."""
CAUSES = {
    r"device string: npu|No module named 'torch\.npu'|register PrivateUse1HooksInterface": "asks torch for a device "
    "called `npu`, which it has with torch_npu only",
    r"does not have the attribute 'compute_encoder_budget'": "replaces a function that vLLM 0.20.2 does not have: "
    "written for another vLLM",
    r"Ascend config is not initialized": "the published code reads vLLM-Ascend's configuration, which this test does "
    "not set",
    r"'NPUWorker' object has no attribute '(init_snapshot|cache_config)'": "makes a worker without its constructor, "
    "and without an attribute that the published worker reads",
    r"required to perform a relative import for <MagicMock": "passes a mock where the published worker expects the "
    "name of a connector's module",
    r"Model architectures .* failed to be inspected": "has vLLM inspect a model in a process of its own, where "
    "`import torch_npu` fails",
    r"worker\.determine_available_memory\(\).*AssertionError: 1 != -?\d+": "computes with memory that the mock of "
    "torch_npu reports, which counts as 1",
    r"get_global_graph_pool.*'NoneType' object is not callable": "asks the platform for graphs, which a CPU has not",
    r"has no attribute 'VLLM_PP_LAYER_PARTITION'": "takes away at its end a variable of vLLM that it has replaced and "
    "that vLLM computes when it is asked for",
}
"""The message of a failure, and why the test fails: none of these is about the block manager."""


@frozen
class Result:
    """How one test ended."""

    outcome: str
    message: str = ""

    @property
    def cause(self) -> str | None:
        """Why it did not pass; None if it passed, or if the cause is unknown."""
        return next((cause for says, cause in CAUSES.items() if re.search(says, self.message, re.DOTALL)), None)


def results(
    *arguments: str, release: Release = ASCEND, switches: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Result]:
    """The tests that are run, or those of ``arguments``, as ``folder/file::test``, each with how it ended."""
    below = () if release.below is None else (fetch(release_named(release.below)),)
    with tempfile.TemporaryDirectory() as scratch:
        # Some tests read the source next to them.
        home = Path(scratch)
        shutil.copytree(ascend_archive(release.version) / "tests", home / "tests")
        (home / PACKAGE).symlink_to(ascend_folder(release) / PACKAGE)
        cases = run_tests(
            home,
            home / "report.xml",
            ("-p", "without_npu", *(arguments or (RUN if release == ASCEND else RUN_LATER))),
            # Where vLLM keeps what it has found out about models, which decides why some tests fail.
            {"VLLM_CACHE_ROOT": str(home / "cache"), **switches},
            path=(*below, ascend_folder(release), ascend_needs()),
        )
    found: dict[str, Result] = {}
    for case in cases:
        file = str(case.get("classname")).split(".Test")[0].removeprefix("tests.ut.").replace(".", "/")
        said = " ".join(f"{child.get('message')} {child.text}" for child in case)
        name = f"{file}::{case.get('name')}"
        if name not in found or found[name].outcome == "passed":
            found[name] = Result(outcome_of(case), said)
    return found


def with_plug_in() -> dict[str, Result]:
    """The same with all of the plug-in switched on."""
    return results(*RUN, "-p", "switched_on", switches=SWITCHES)


def page(off: Mapping[str, Result], on: Mapping[str, Result], later: Mapping[str, Mapping[str, Result]]) -> str:
    """The table; ``later`` has the results of later releases."""
    return "\n".join((*_lines(off, on), *_of_later(later), *_ends())) + "\n"


def _lines(off: Mapping[str, Result], on: Mapping[str, Result]) -> Iterator[str]:
    yield f"# vLLM-Ascend {ASCEND.version}'s own unit tests, with the plug-in off and on"
    yield ""
    yield f"Written by `{COMMAND}`. The tests are those of the published source archive, run on the modules of the"
    yield "published wheel, on a CPU. On: " + ", ".join(f"`{name}={value}`" for name, value in SWITCHES.items()) + "."
    yield ""
    yield "| file | tests | passed, off | passed, on | differ |"
    yield "|---|---|---|---|---|"
    for file in sorted({_file(name) for name in (*off, *on)}):
        arms = [{name: each for name, each in arm.items() if name.startswith(f"{file}::")} for arm in (off, on)]
        passed = [sum(each.outcome == "passed" for each in arm.values()) for arm in arms]
        differ = sum(_differs(arms, name) for name in {*arms[0], *arms[1]})
        yield f"| {file}.py | {len(arms[0])} | {passed[0]} | {passed[1]} | {differ} |"
    yield ""
    yield "## Why tests fail"
    yield ""
    yield "| cause | tests, off | tests, on | files |"
    yield "|---|---|---|---|"
    failed = [{name: each for name, each in arm.items() if each.outcome != "passed"} for arm in (off, on)]
    counts = [Counter(each.cause or "unknown" for each in arm.values()) for arm in failed]
    for cause in sorted({*counts[0], *counts[1]}):
        files = {_file(name) for name, each in failed[0].items() if cause == (each.cause or "unknown")}
        yield f"| {cause} | {counts[0][cause]} | {counts[1][cause]} | {', '.join(sorted(files))} |"


def _of_later(later: Mapping[str, Mapping[str, Result]]) -> Iterator[str]:
    yield ""
    yield "## Later releases"
    yield ""
    yield "On the vLLM that they belong to, and without the plug-in, which is for vLLM 0.20.2: the same folders, and"
    yield f"`{RUN_LATER[-1]}`."
    yield ""
    yield "| release | folder | files | tests | passed |"
    yield "|---|---|---|---|---|"
    for version, found in later.items():
        for folder in sorted({_folder(name) for name in found}):
            those = {name: each for name, each in found.items() if _folder(name) == folder}
            files, passed = {_file(name) for name in those}, sum(each.outcome == "passed" for each in those.values())
            yield f"| {version} | {folder} | {len(files)} | {len(those)} | {passed} |"
    yield ""
    yield "| release | tests | cause | files |"
    yield "|---|---|---|---|"
    for version, found in later.items():
        failed = {name: each.cause or "unknown" for name, each in found.items() if each.outcome != "passed"}
        for cause, count in sorted(Counter(failed.values()).items()):
            files = {_file(name) for name, each in failed.items() if each == cause}
            yield f"| {version} | {count} | {cause} | {', '.join(sorted(files))} |"


def _file(name: str) -> str:
    return name.partition("::")[0]


def _folder(name: str) -> str:
    return _file(name).rpartition("/")[0] or "."


def _ends() -> Iterator[str]:
    yield ""
    yield "## What stands in for what"
    yield ""
    yield "| absent here | in its place |"
    yield "|---|---|"
    yield from (f"| {name} | {stand_in} |" for name, stand_in in STAND_INS.items())
    yield ""
    yield "The archive's own `conftest` mocks more: Triton's runtime, and parts of torch_npu."
    yield ""
    yield "## Not run"
    yield ""
    yield "| folder | why |"
    yield "|---|---|"
    yield from (f"| {folder} | {why} |" for folder, why in NOT_RUN.items())


def _differs(arms: list[dict[str, Result]], name: str) -> bool:
    first, second = (arm.get(name) for arm in arms)
    return first is None or second is None or (first.outcome, first.cause) != (second.outcome, second.cause)


if __name__ == "__main__":
    print(page(results(), with_plug_in(), {each.version: results(release=each) for each in LATER_ASCEND}), end="")
