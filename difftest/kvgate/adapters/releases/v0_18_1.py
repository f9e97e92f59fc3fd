"""vLLM 0.18.1: as 0.17.1."""

from __future__ import annotations

from attrs import evolve

from kvgate.adapters.releases.description import Additions
from kvgate.adapters.releases.v0_17_1 import RELEASE as OLDER

RELEASE = evolve(
    OLDER,
    version="0.18.1",
    wheels={
        "aarch64": "7356bbb6d109798415b67ac48d451aab7e1182eef68032d4f119c803a3fe386a",
        "x86_64": "0268c76c24f1e93ec4b2f87a6779ceec39e23effa55ff8a94cf84b32ddd3730a",
    },
    additions=Additions(reason="its scheduler is not driven"),
)
