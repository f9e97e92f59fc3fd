"""What the gate relies on of each release's scheduler, pinned; see ``kvgate.adapters.signatures``.

The parameters of every symbol, by version, are in the file beside this one; a test compares them. ``python -m
kvgate.levels.scheduler.adapter.signatures SYSTEM…`` writes it anew, for a gate that was made to fit what changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvgate.adapters.native_signatures import in_lines, pins_in
from kvgate.adapters.releases import fetch, release_named
from kvgate.adapters.signatures import VLLM_VERSION, parameters_of
from kvgate.kernel.child_process import run
from kvgate.kernel.errors import SystemUnavailableError

FILE = Path(__file__).with_suffix(".json")

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_OUTPUT = "vllm.v1.core.sched.output"
_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.base:KVConnectorBase_V1"
_MANAGER = "vllm.v1.core.kv_cache_manager:KVCacheManager"
SYMBOLS = (
    f"{_SCHEDULER}.__init__",
    f"{_SCHEDULER}.schedule",
    f"{_SCHEDULER}.update_from_output",
    f"{_SCHEDULER}.update_draft_token_ids",
    f"{_SCHEDULER}.add_request",
    f"{_SCHEDULER}.finish_requests",
    f"{_SCHEDULER}.reset_prefix_cache",
    f"{_SCHEDULER}.has_unfinished_requests",
    "vllm.v1.core.sched.async_scheduler:AsyncScheduler.__init__",
    f"{_OUTPUT}:SchedulerOutput",
    f"{_OUTPUT}:NewRequestData",
    f"{_OUTPUT}:CachedRequestData",
    "vllm.v1.outputs:ModelRunnerOutput",
    "vllm.v1.outputs:KVConnectorOutput",
    "vllm.v1.outputs:DraftTokenIds",
    "vllm.v1.engine:EngineCoreOutput",
    "vllm.v1.request:Request.__init__",
    f"{_CONNECTOR}.__init__",
    f"{_CONNECTOR}.get_num_new_matched_tokens",
    f"{_CONNECTOR}.update_state_after_alloc",
    f"{_CONNECTOR}.build_connector_meta",
    f"{_CONNECTOR}.request_finished",
    f"{_MANAGER}.get_computed_blocks",
    f"{_MANAGER}.allocate_slots",
    f"{_MANAGER}.remove_skipped_blocks",
    f"{_MANAGER}.pop_blocks_for_free",
)
"""What drives a scheduler, what it answers, and what it calls; a release need not have all of them."""


def pinned(version: str) -> Mapping[str, tuple[str, ...] | None]:
    """The symbols as they are in ``version``."""
    return pins_in(FILE)[version]


def version_of(system: str) -> str:
    """Whose scheduler stands over a system: its own release's, or that of the vLLM that is installed."""
    return release_named(system).version if system.partition("@")[0] == "native" else VLLM_VERSION


def seen() -> Mapping[str, tuple[str, ...] | None]:
    """The symbols as they are in this process."""
    return {path: parameters_of(path) for path in SYMBOLS}


def _write(systems: Sequence[str]) -> None:
    document = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for system in systems:
        code = "import json; from kvgate.levels.scheduler.adapter.signatures import seen; print(json.dumps(seen()))"
        if system.partition("@")[0] == "native":
            code = f"import sys; sys.path.insert(0, {str(fetch(release_named(system)))!r}); {code}"
        ended = run([sys.executable, "-c", code], stderr=None)
        if ended.code:
            raise SystemUnavailableError(f"{system}: its signatures cannot be read")
        document[version_of(system)] = json.loads(ended.output.splitlines()[-1])
    FILE.write_text(in_lines(document), encoding="utf-8")


if __name__ == "__main__":
    _write(sys.argv[1:])
