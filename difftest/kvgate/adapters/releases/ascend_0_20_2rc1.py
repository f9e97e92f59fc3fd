"""vLLM-Ascend 0.20.2rc1: its own coordinator, with and without prefix caching, around the managers of vLLM 0.20.2."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.v0_20_2 import RELEASE as VLLM

RELEASE = evolve(
    VLLM,
    system="ascend",
    version="0.20.2rc1",
    distribution="vllm-ascend",
    package="vllm_ascend",
    cache_folder="vllm-ascend",
    pip_options=(
        *("--pre", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"),
        *("--platform", "manylinux_2_24_x86_64"),
    ),
    wheels={
        "cp310 x86_64": "77cef5d8fd9138b3886664e734c19f84a9beca976c179cc1c4cd370feaf64651",
        "cp310 aarch64": "658c2cf380cecd9cc8a7423f9f824864f81f94cf768bca2de06e3954a3723ca0",
        "cp311 x86_64": "0ab8dbea974053a6cf506c92bb7855e7fd559d8a9ae85c96cb5648f0d1d42f81",
        "cp311 aarch64": "6a30f486c1298530ee3d9a4bac9efef22af14e9ca2eee35b6b8284fbda70fa2d",
    },
    counts_slots=True,
    choices="counts-shared",
    findings=VLLM.findings | {"013-compressed-block-known-by-its-slots"},
)
