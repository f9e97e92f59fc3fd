"""What a server reports at ``/metrics``, sample by sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen


@frozen
class Sample:
    """One number, with its labels."""

    name: str
    labels: Mapping[str, str]
    value: float


def summed(samples: Iterable[Sample]) -> dict[str, float]:
    """The sums over all labels, by name."""
    sums: dict[str, float] = {}
    for sample in samples:
        sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums
