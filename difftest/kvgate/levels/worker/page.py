"""What of vLLM-Ascend's worker is run on a CPU, and with which block sizes: ``difftest/ASCEND.md``.

``python -m kvgate.levels.worker.page > difftest/ASCEND.md`` writes it. Each system is started in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict

from kvgate.adapters.ascend_wheel import PACKAGE, ascend_folder
from kvgate.adapters.model_runner.block_sizes import BLOCK_SIZES, SIZES, kernel_sizes
from kvgate.adapters.model_runner.operators import LIMITS, MODULES, Limit, Operator, operators
from kvgate.adapters.model_runner.stand_ins import INTERPRETED, STAND_INS
from kvgate.adapters.registry import ASCEND_WORKERS, load_system
from kvgate.adapters.releases import ASCEND, LATER_ASCEND
from kvgate.kernel.errors import UsageError
from kvgate.kernel.models import Model, load
from kvgate.levels.scheduler.level import EngineBench
from kvgate.levels.worker.engine import FOUND, WORKERS
from kvgate.levels.worker.level import WORKER

COMMAND = "python -m kvgate.levels.worker.page > difftest/ASCEND.md"
ASCEND_WORKER, ZEROES = "ascend-worker", f"{PACKAGE}.worker.utils:_zero_kv_blocks_kernel"
MTP, PARTIAL = "+mtp", "+partial"
SUFFIXES = ("", MTP, PARTIAL, MTP + PARTIAL)
CASES = tuple((pressure, str(seed)) for pressure, seeds in (("tiny", 4), ("legal", 12)) for seed in range(seeds))
"""What a cell is tried with until all was compared that it is about."""
AGREES, UNSUPPORTED, REFUSED = "agrees", "not asked", "partial hits in group"
AGREES_FOUND = "agrees, without compressed slots"
NO, YES = "", "yes"
_PAGE = """\
# vLLM-Ascend {version}'s worker without an NPU

Written by `{command}`; a test compares it with what is published and what starts.

`pytest difftest/ --npu-sim` runs the worker on a CPU. `pytest difftest/ --npu=N` runs the same tests on NPU N;
**nothing of `--npu` has been run on an NPU yet.** No ACL graph is captured in either: steps are prepared, and no model
is run.

## Kernels and operators

All that these modules name: {modules}. What is never run is absent in a simulated run, or has no kernel for a CPU: to
call it is an error, and no result depends on it.

{operators}

{named} are named, {never_run} of them are never run.

The same modules of later releases name further ones. `compressor_metadata` maps the slots of compressed caches. Its
published callers run once for each compressed group, all groups of a step in one forward context. A stand-in returns
the arguments, and each of them is compared; what the operator itself returns is not known.

{later}

## What stands in for what

{stand_ins}

## Block sizes

Kernel block sizes that the back-end for compressed attention of {version} lists: {kernel_sizes}. Without the plug-in
all its compressed blocks have 128 slots. Each worker was started on a CPU with the groups of DeepSeek-V4, and prepared
the steps of small cases until slots of every group were compared, drafts that are verified with MTP, and copied blocks
with partial hits. `{agrees}`: everything that the level compares was right. `{agrees_found}`: the same, but a compiled
operator finds the slots of compressed caches, and only what it is given was compared. `{unsupported}`: kvgate asks for
partial hits with the plug-in alone. Everything else is the first error. `ascend-worker` is {version}, and
`ascend-worker-retention` the same with the plug-in.

{outcomes}

The compiled operators of {version} check block sizes of their own. Read from the source archive, and not run:

{limits}

## Its own schedulers

What becomes of an import of each on a CPU, with the stand-ins above, in a process that has started `ascend-worker` of
that release. What is `run` is followed by the reference, as a system of its own: `kvgate check --level scheduler --sut
ascend-recompute@0.23.0`. What `imports` is not run.

| module of `vllm_ascend.core` | 0.20.2rc1 | 0.23.0 | 0.30.0rc2 |
| --- | --- | --- | --- |
| `recompute_scheduler` | run | run | imports |
| `scheduler_dynamic_batch` | No module named 'pandas' | No module named 'pandas' | not published |
| `scheduler_profiling_chunk` | imports | run | run |
| `batch_job_aware_scheduler` | not published | not published | imports |
| `dyntra_lb_scheduler` | not published | not published | run |
| `short_request_first_scheduler` | not published | not published | imports |

| system | what of it is not driven |
| --- | --- |
| `ascend-recompute` | other nodes, and grammars that reject a token (findings 073 and 074) |
| `ascend-recompute@0.23.0` | other nodes: with them it pads drafts, and caches what was loaded, by rules of its own |
| `ascend-profiling-chunk@0.23.0` | chunks by a profile, for none is measured; it ends where it must preempt (082) |
| `ascend-profiling-chunk@0.30.0rc2` | chunks by a profile, for none is measured |
| `ascend-dyntra-lb@0.30.0rc2` | decisions of other ranks: the test has none, and all requests are admitted |

Not run: if `recompute_scheduler` of 0.30.0rc2 lacks room, it ends a request and has its client send it to another node.
The reference preempts such a request. (Without vLLM-Ascend's configuration, which the scheduler asks there, it raises
an error.) `batch_job_aware_scheduler` chooses requests by job and length, and `short_request_first_scheduler` serves
short prompts first. The monitor of the queue's order expects order of arrival or priority: it reports both in the first
cases. `patch_balance_schedule` of 0.30.0rc2, switched on, has a copy of an older vLLM's steps that counts no look-ups
of the prefix cache: statistics differ in the first case. Switched off, it calls vLLM's.
`patch_mamba_block_aligned_split` and `patch_async_swa_kv_lifetime` are part of `ascend@0.30.0rc2` and `ascend@0.23.0`.
`scheduler_dynamic_batch` needs pandas, which is not installed here; its constructor does not take `hash_block_size`,
which the engine of vLLM 0.23.0 gives to its scheduler, by both sources.

The coordinator of 0.30.0rc2 takes the retention interval from `VLLM_PREFIX_CACHE_RETENTION_INTERVAL`, which vLLM 0.30.0
has no more, and not from the configuration: `--prefix-cache-retention-interval` is ignored (vLLM 0.30.0 does as it
says). It caches what a hit at any boundary reads. A test shows it; it is not written up as a finding, for no run with
an interval is asked of this release.

## What is not shown

- A cell of the table is a few small cases. Random batches (`python -m tests.difftest.worker.batches`) go further for
  0.20.2rc1 with the plug-in.
- Of 0.23.0 and 0.30.0rc2, `{agrees_found}` says that `compressor_metadata` gets the right arguments: start positions,
  offsets, block table, number of rows, ratio, slots of a block, format of slots, rotary tables at the first token
  of each slot, and room for at least the slots that are completed and at most `min(tokens, tokens // ratio + rows)`.
  The slots that these arguments name are compared with those that were granted; those that the operator maps are not
  seen.
- The layers that call it are not constructed. Each has the ratio of its group's specification, all have rotary tables
  of one base, and each group has one layer. `compressor_metadata_out` of 0.30.0rc2, for metadata that is built on the
  device, is not called.
- In the steps each group has one layer with small slots. The memory of DeepSeek-V4's own layers, with the plan that
  vLLM-Ascend 0.20.2rc1 and the plug-in make of them, and the plug-in's copies in it, are compared byte by byte by
  `pytest -m "ci or deep" tests/difftest/worker/test_dsv4_memory.py`.
- The memory of models without compression is not made: of them tables, slots and metadata are compared.
"""


def outcomes(system: str) -> dict[str, dict[int, str]]:
    """What becomes of a few steps of DeepSeek-V4, by the suffixes of the model and the slots of a block.

    Raises:
        SystemUnavailableError: it is not here.
    """
    bench = WORKER.bench(load_system(system), WORKER.gate)
    return {
        suffixes: {slots: _outcome(bench, load(f"dsv4-flash-ascend-{slots}{suffixes}+whole-slots")) for slots in SIZES}
        for suffixes in SUFFIXES
    }


def _outcome(bench: EngineBench, model: Model) -> str:
    """``agrees`` once slots of every group were compared, and drafts and copies if the model has them; or an error."""
    needed = {f"slots of group {index}" for index in range(len(model.geometry.groups))}
    needed |= {"drafts"} if model.geometry.lookahead_tokens else set()
    needed |= {"copies"} if any(group.copies for group in model.geometry.groups) else set()
    compared = Counter[str]()
    for pressure, seed in CASES:
        case = WORKER.allowed(bench, WORKER.draw(model, pressure, seed))
        try:
            world: Any = bench.build(case)
        except UsageError as error:
            if REFUSED not in str(error):
                raise
            return UNSUPPORTED
        for operation in (*case.operations, None):
            found = next(iter(world.close()), None) if operation is None else world.perform(operation)
            if found is not None:
                got: str = found.difference.got
                return got.strip()
            # The engine counts what it has compared.
            so_far = compared + world.compared
            if all(so_far[each] or so_far[each + FOUND] for each in needed):
                return AGREES_FOUND if any(not so_far[each] for each in needed) else AGREES
        compared += world.compared
    return f"not compared: {', '.join(sorted(each for each in needed if not compared[each]))}"


def rows(system: str, found: Mapping[str, Mapping[int, str]]) -> Iterator[tuple[str, ...]]:
    """The rows of a system."""
    for suffixes, by_size in found.items():
        has = (YES if suffix in suffixes else NO for suffix in (MTP, PARTIAL))
        yield f"`{system}`", *has, *(by_size[slots] for slots in SIZES)


def page(folder: Path, found: Mapping[str, Mapping[str, Mapping[int, str]]], later: Mapping[str, Path]) -> str:
    """The page; ``later`` are the folders of later releases."""
    named, sizes = operators(folder), kernel_sizes(folder)
    known = {each.name for each in named}
    further = (
        (release, each)
        for release, home in later.items()
        for each in (*operators(home), *_kernels(release))
        if each.name not in known
    )
    return _PAGE.format(
        version=ASCEND.version,
        command=COMMAND,
        modules=", ".join(f"`{each}`" for each in MODULES),
        operators=_table(("kernel or operator", "interpreted", "replaced", "never run"), map(_operator, named)),
        later=_table(
            ("release", "kernel or operator", "interpreted", "replaced", "never run"),
            ((release, *_operator(each)) for release, each in further),
        ),
        named=len(named),
        never_run=sum(each.never_run for each in named),
        stand_ins=_table(
            ("what", "in its place", "why"), ((f"`{each.name}`", each.by, each.why) for each in STAND_INS)
        ),
        kernel_sizes="none that can be read from its source" if sizes is None else ", ".join(map(str, sizes)),
        agrees=AGREES,
        agrees_found=AGREES_FOUND,
        unsupported=UNSUPPORTED,
        outcomes=_table(
            ("system", "MTP", "partial hits", *(f"{slots} slots" for slots in SIZES)),
            (row for system, each in found.items() for row in rows(system, each)),
        ),
        limits=_table(
            ("operator", "groups", "slots of a block", "sizes above that it allows", "source"), map(_limit, LIMITS)
        ),
    )


def _operator(each: Operator) -> tuple[str, ...]:
    return f"`{each.name}`", each.interpreted, each.replaced, YES if each.never_run else NO


def _kernels(release: str) -> Iterator[Operator]:
    """The Triton kernels that the worker of a later release is run with."""
    for kernel in (*WORKERS[f"{ASCEND_WORKER}@{release}"].kernels, ZEROES):
        yield Operator(kernel.rpartition(":")[2], {}, interpreted=INTERPRETED)


def _limit(each: Limit) -> tuple[str, ...]:
    slots = f"multiples of {each.multiple_of}, at most {each.most}" if each.most is not None else "at least 1"
    allowed = (str(size) for size in SIZES if all(map(each.allows, _blocks(each, size))))
    return f"`{each.operator}`", ", ".join(each.groups), slots, ", ".join(allowed), f"`{each.source}`"


def _blocks(limit: Limit, size: int) -> Iterator[int]:
    """How many slots the blocks have that an operator sees, where compressed blocks have ``size``."""
    return (asdict(BLOCK_SIZES[size])[group] for group in limit.groups)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def parsed(printed: str) -> dict[str, dict[int, str]]:
    """What a process printed of a system."""
    return {
        suffixes: {int(slots): text for slots, text in by_size.items()}
        for suffixes, by_size in json.loads(printed.splitlines()[-1]).items()
    }


def main() -> None:
    """Print the outcomes of a system, as JSON, or without a system the page."""
    if len(sys.argv) > 1:
        print(json.dumps(outcomes(sys.argv[1])))
        return
    found = {}
    for system in (*ASCEND_WORKERS, *(each.worker_name for each in LATER_ASCEND)):
        command = [sys.executable, "-m", "kvgate.levels.worker.page", system]
        finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[system] = parsed(finished.stdout)
    print(page(ascend_folder(), found, {each.version: ascend_folder(each) for each in LATER_ASCEND}), end="")


if __name__ == "__main__":
    main()
