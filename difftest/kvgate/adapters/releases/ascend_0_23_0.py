"""vLLM-Ascend 0.23.0: its worker, on its own coordinator and managers, and on vLLM 0.23.0."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.ascend_0_20_2rc1 import RELEASE as OLDER
from kvgate.adapters.releases.v0_23_0 import RELEASE as VLLM

RELEASE = evolve(
    VLLM,
    system="ascend",
    version="0.23.0",
    distribution=OLDER.distribution,
    package=OLDER.package,
    cache_folder=OLDER.cache_folder,
    pip_options=(
        *("--pre", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"),
        *("--platform", "manylinux_2_34_x86_64"),
    ),
    wheels={
        "cp310 x86_64": "35ccb9d27745d76c5b9d17d537b764b1e854e283055a023fba1260135b75b083",
        "cp310 aarch64": "9dbd8db7ce28b5b19ce33d2f756f16c1a5fbe496dc88009308fd6ffebe4720b9",
        "cp311 x86_64": "4f0d25d3b6d8ae85753b53d4bd8d910418865baf413fa779b87012ad1a4a3f87",
        "cp311 aarch64": "cdf79713e6b77cf0a357ed5f99ad4864bbb7790d2903dd81aac5c760f6e86ce6",
        "cp312 x86_64": "536ba42ae5298cb4d313d876fa6e60cce686c41c6cf71161930e1fead0813b02",
        "cp312 aarch64": "c04edb67ed898d914d64ba1e889b8567e8291316536f2e6bf23a17d27ad569b6",
    },
    below=VLLM.name,
    patches=(
        "patch.platform.patch_kv_cache_utils",
        "patch.platform.patch_async_swa_kv_lifetime",
        "patch.platform.patch_mamba_manager",
        "patch.platform.patch_kv_cache_coordinator",
    ),
    counts_slots=True,
    choices="scratch-of-windows-and-shared",
    findings=VLLM.findings - {"036-states-hit-past-attention"}
    | {"080-each-step-counts-a-state-too-many", "112-ascend-store-reads-blocks-that-a-window-left"}
    | {"113-ascend-store-forgets-a-load-after-a-reset", "114-ascend-store-stores-the-null-block"},
    holds_windows=True,
)
