"""vLLM-Ascend 0.30.0rc2: its worker, on its own coordinator and managers, and on vLLM 0.30.0.

It is published as a source archive only.
"""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.ascend_0_23_0 import RELEASE as OLDER
from kvgate.adapters.releases.v0_30_0 import RELEASE as VLLM
from kvgate.adapters.releases.v0_30_0 import SCHEDULER_RULES

RELEASE = evolve(
    VLLM,
    system=OLDER.system,
    version="0.30.0rc2",
    distribution=OLDER.distribution,
    package=OLDER.package,
    cache_folder=OLDER.cache_folder,
    wheels={},
    archive="05cb51448c0cd174ea338b16ebbfc8e215f44b373ea2a0d65f1314523a01152f",
    below=VLLM.name,
    patches=(
        "patch.platform.patch_kv_cache_utils",
        "patch.platform.patch_mamba_block_aligned_split",
        "patch.platform.patch_mamba_manager",
        "patch.platform.patch_kv_cache_coordinator",
    ),
    choices="scratch-and-shared",
    findings=VLLM.findings | {"080-each-step-counts-a-state-too-many", "081-no-look-ahead-without-a-connector"},
    drafts_in_full=True,
    checked=False,
    scheduler=evolve(SCHEDULER_RULES, looks_not_ahead=True),
    # Its coordinator reads the interval from where it was in 0.23.0, and never finds one.
    interval=None,
    retains_least=False,
    pins_junctions=False,
)
