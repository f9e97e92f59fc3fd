"""The tier of files below the host, with real files: over a restart, and between two engines.

Goal: a hit brings exactly what its key names, whichever engine wrote the file, and the check fails if a key names other
content. Method: cases by their seeds, and one prompt that is served twice, with the release as it is and broken.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from attrs import evolve
from tests.published import published

from kvgate.adapters.releases import release_named
from kvgate.kernel.models import load
from kvgate.levels.tiers.files import FileJob, Folder
from kvgate.levels.tiers.level import TIERING_SYSTEMS, TIERS
from kvgate.levels.tiers.memory import Copy, Job, TierMemory
from kvgate.levels.tiers.operations import EndFiles, OtherEngine, Restart
from kvreference.settings import Settings

CASES = """
import json, sys
from kvgate.adapters.registry import load_system
from kvgate.gate.case_runner import run_case
from kvgate.kernel.models import load
from kvgate.levels.tiers.level import TIERS

bench = TIERS.bench(load_system(sys.argv[1]), TIERS.gate)
new, same, read, others = [], True, 0, 0
for model in sys.argv[2:]:
    for preset in ("legal", "hostile", "tiny"):
        for number in range(3):
            case = TIERS.allowed(bench, TIERS.draw(load(model), preset, f"test/{number}", needs=["connector=tiering"]))
            run = run_case(bench, case)
            new += [str(each.divergence.difference) for each in run.found() if each.finding is None]
            read += run.world.folder.chunks_read
            others += run.world.folder.chunks_read_of_others
            again = number == 0 and run_case(bench, case).world.current.lockstep.digest
            same &= again in (False, run.world.current.lockstep.digest)
print(json.dumps([new, same, read, others]))
"""
SERVED_TWICE = """
import json, sys
from pathlib import Path
from kvgate.adapters.registry import load_system
from kvgate.kernel.models import load
from kvgate.levels.scheduler.operations import Serve
from kvgate.levels.tiers import operations
from kvgate.levels.tiers.engines import Engines
from kvgate.levels.tiers.operations import EndFiles, EndJobs, TierStage
from kvreference.content import Keys
from kvreference.operations import Arrive, Run
from kvreference.scheduler.operations import Reply, Step
from kvreference.settings import Settings

system, then, broken = sys.argv[1:]
load_system(system)
if broken == "salt":
    from vllm.v1.core import kv_cache_utils
    made = kv_cache_utils.generate_block_hash_extra_keys
    kv_cache_utils.generate_block_hash_extra_keys = lambda *rest: (None, made(*rest)[1])
if broken == "name":
    from vllm.v1.kv_offload.file_mapper import FileMapper
    FileMapper.get_file_name = lambda self, key: f"{self.base_path}/one.bin"
settings = Settings(load("full").geometry, 20, 1000, 200, 4, tells_events=False, scratch_first=True)
engines = Engines(settings, TierStage(chunks=8, connector="tiering", running_max=4), system)

def serve(first, salt):
    engine = engines.current
    came = []
    receive = engine._receive
    engine._receive = lambda output: (
        came.extend(each.num_computed_tokens for each in output.scheduled_new_reqs), receive(output)
    )[1]
    engines.perform(Serve(Arrive(0, (Run(first, 65),), Keys(salt=salt)), 1))
    for _ in range(12):
        engines.perform(Step((Reply(),)))
        for back in (False, True):
            engines.perform(EndJobs(back, 9))
            engines.perform(EndFiles(back, 9))
    return came[0] if came else None

hits = [serve(0, "a")]
files = sorted(path.name for path in Path(engines.folder.path).rglob("*.bin"))
engines.perform(getattr(operations, then)())
hits += [serve(0, "b"), serve(0, "a")]
found = engines.current.found
print(json.dumps([hits, files, engines.folder.chunks_read_of_others, found and found.difference.statement]))
"""


def said(program: str, *arguments: str) -> list[object]:
    command = [sys.executable, "-c", program, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert 0 == ended.returncode, ended.stderr[-3000:]
    document: list[object] = json.loads(ended.stdout.splitlines()[-1])
    return document


@pytest.mark.ci
@pytest.mark.parametrize("name", TIERING_SYSTEMS)
def test_nothing_new_and_the_same_again(name: str) -> None:
    pytest.importorskip("vllm")
    published(release_named(name))
    new, same, read, others = said(CASES, name, "full+scratch", "gpt-oss-hybrid+scratch")
    assert [] == new
    assert same
    assert isinstance(read, int)
    assert isinstance(others, int)
    assert read >= others > 0, (read, others)


@pytest.mark.ci
@pytest.mark.parametrize("then", ["Restart", "OtherEngine"])
def test_files_of_another_engine_bring_what_their_keys_name(then: str) -> None:
    """Under one salt four blocks come from files; under another none do."""
    pytest.importorskip("vllm")
    published(release_named("native@0.33.0"))
    hits, files, read, found = said(SERVED_TWICE, "native@0.33.0", then, "")
    assert [0, 0, 64] == hits
    assert isinstance(files, list)
    assert 4 == len(files)
    assert 4 == read
    assert found is None


@pytest.mark.ci
def test_another_process_names_files_alike() -> None:
    """So a restart that is another process finds them, in the folder of the same model."""
    pytest.importorskip("vllm")
    published(release_named("native@0.33.0"))
    first, second = (said(SERVED_TWICE, "native@0.33.0", "Restart", "")[1] for _ in range(2))
    assert first == second


@pytest.mark.ci
@pytest.mark.parametrize(("broken", "statement"), [("salt", "KV-OP-09"), ("name", "KV-TIER-01")])
def test_a_key_that_names_other_content_is_found(broken: str, statement: str) -> None:
    pytest.importorskip("vllm")
    published(release_named("native@0.33.0"))
    assert statement == said(SERVED_TWICE, "native@0.33.0", "Restart", broken)[-1]


# Ghost memory of files, without vLLM


def memory() -> TierMemory:
    """A host with two chunks of one block: the first holds the tokens of a request, under the key ``k``."""
    one = TierMemory(Settings(load("full").geometry, 8, 100), 1)
    one.folder = Folder()
    tokens = [one.prefixes.after(("salt", None), 0)]
    for token in range(1, 16):
        tokens.append(one.prefixes.after(tokens[-1], token))
    one.name(b"k", tokens[-1])
    one.tokens["r"] = tokens
    one.host[0, 0, 0] = 0, tuple(tokens)
    return one


def file_job(number: int, reads: bool, chunk: int = 0) -> FileJob:
    return FileJob(number, reads, "r", {chunk: (b"k", 0)})


def load_job(chunk: int) -> Job:
    return Job((0, 1, 0), True, "r", (Copy(0, 1, chunk, 0, 0),), {chunk: (b"k", 0)})


def test_a_file_brings_what_was_written() -> None:
    one = memory()
    one.begin_file(file_job(1, reads=False))
    one.wrote(one.file_jobs[1], {(b"k", 0)})
    one.end_file(1, None)
    one.begin_file(file_job(2, reads=True, chunk=1))
    one.host[0, 1, 0] = one.host[0, 0, 0]
    one.end_file(2, None)
    assert one.found is None
    assert (1, 1) == (one.folder.chunks_written, one.folder.chunks_read) if one.folder else False


def test_a_file_that_brings_something_else_is_found() -> None:
    one = memory()
    one.begin_file(file_job(1, reads=False))
    one.wrote(one.file_jobs[1], {(b"k", 0)})
    one.end_file(1, None)
    one.begin_file(file_job(2, reads=True, chunk=1))
    one.end_file(2, None)
    assert one.found is not None
    assert "KV-TIER-01" == one.found.statement


def test_a_read_of_a_file_that_is_not_there_is_found() -> None:
    one = memory()
    one.begin_file(file_job(1, reads=True))
    one.end_file(1, None)
    assert one.found is not None
    assert ("KV-TIER-01", "there is none") == (one.found.statement, one.found.got)


def test_a_file_that_is_written_from_something_else_is_found() -> None:
    one = memory()
    one.begin_file(file_job(1, reads=False, chunk=1))
    assert one.found is not None
    assert "KV-TIER-04" == one.found.statement


@pytest.mark.parametrize(("reads", "is_found"), [(True, True), (False, False)])
def test_a_chunk_that_a_load_reads_is_not_read_to(reads: bool, is_found: bool) -> None:
    """Two that only read a chunk may have it both."""
    one = memory()
    one.begin(load_job(0))
    one.begin_file(file_job(1, reads))
    assert is_found == (one.found is not None)


@pytest.mark.parametrize(("reads", "is_found"), [(True, True), (False, False)])
def test_a_chunk_that_files_use_is_not_loaded_before(reads: bool, is_found: bool) -> None:
    one = memory()
    one.begin_file(file_job(1, reads))
    one.begin(load_job(0))
    assert is_found == (one.found is not None)


def test_operations_of_files_are_drawn_with_a_tier_of_files_only() -> None:
    kinds = EndFiles, Restart, OtherEngine
    case = TIERS.draw(load("full+scratch"), "legal", "1")
    assert not [each for each in case.operations if isinstance(each, kinds)]
    case = TIERS.draw(load("full+scratch"), "legal", "1", needs=["connector=tiering"])
    assert {type(each) for each in case.operations} >= {EndFiles}
    assert TIERS.is_possible(Restart, case)
    assert not TIERS.is_possible(Restart, evolve(case, stage=evolve(case.stage, connector="multi")))
