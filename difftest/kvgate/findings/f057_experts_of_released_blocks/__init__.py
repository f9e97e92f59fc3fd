"""Finding 057: For tokens whose blocks were released, the returned experts are undefined or missing."""

from collections.abc import Callable, Sequence

from kvgate.findings.finding import Acts, Finding
from kvreference.rules import Delta

RULE = "experts_returned"
"""A rule of the scheduler's level, which knows what clients are sent."""
Rule = Callable[[Sequence[int], Sequence[int | None]], Sequence[int]]


def _read(returned: Rule, experts: Sequence[int], kept: Sequence[int | None]) -> Sequence[int]:
    """At the place of the null block stands what stands there; what the table has no entry for is left out."""
    ideal = returned(experts, kept)
    return [expert if other is None else other for expert, other in zip(ideal, kept, strict=False)]


FINDING = Finding(
    id="057-experts-of-released-blocks",
    rank=57,
    statement="KV-SYS-05",
    condition="experts are returned of a request that does not hold all its blocks any more",
    on=lambda stage: stage.options.returns_experts,
    acts=lambda *_run: Acts([Delta(RULE, _read)]),
    holds=lambda _ideal, _answered, experts, kept: len(kept) < len(experts) or any(each is not None for each in kept),
)
