"""Links that a guarantee does not have, each with the reason why it is in order.

An exemption for a link that is there is stale, and fails as a missing link does.
"""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import in_, min_len

KINDS = ("chapter", "proof", "explorer", "monitor", "test", "planted fault", "known bug")
"""What every guarantee is linked to. A *planted fault* is a mutant of vLLM, or a design that is refuted."""


@frozen
class Exemption:
    """Guarantees that have no link of one kind."""

    kind: str = field(validator=in_(KINDS))
    statements: tuple[str, ...] = field(validator=min_len(1))
    reason: str = field(validator=min_len(20))


EXEMPTIONS: tuple[Exemption, ...] = (
    Exemption(
        "proof",
        ("KV-INV-04", "KV-OP-20"),
        "the transitions that are proved know entries and copies, and neither requests nor steps; both are tested, and "
        "the first is explored",
    ),
    Exemption(
        "proof",
        ("KV-OP-02", "KV-OP-09"),
        "it is how the reference is written, an order of entries and an equality of prefixes, and no theorem about it",
    ),
    Exemption(
        "proof",
        ("KV-OP-13", "KV-OP-14"),
        "a counter and a question beside the state, on which nothing else rests; lockstep compares both",
    ),
    Exemption(
        "proof",
        ("KV-SYS-01", "KV-SYS-02", "KV-SYS-03", "KV-SYS-05", "KV-LEAK-02"),
        "that code does not raise, what another program knows, and how large its containers are, is no statement about "
        "numbers",
    ),
    Exemption(
        "explorer",
        tuple(f"KV-OP-{number:02}" for number in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14)),
        "the explorer judges states, and not which of several sound answers is given, nor what is counted and told: "
        "lockstep compares every answer",
    ),
    Exemption(
        "proof",
        ("KV-WORK-02",),
        "it compares two steps of a running system, whose reference looks at everything in every step",
    ),
    Exemption(
        "proof",
        ("KV-SYS-06",),
        "it compares what a running scheduler asks for with the smallest of four numbers, and that is no theorem",
    ),
    Exemption(
        "explorer",
        ("KV-WORK-02",),
        "contexts of tiny models are too short to tell what is constant from what grows; the reference may be slow",
    ),
    Exemption(
        "explorer",
        ("KV-LEAK-02", "KV-SYS-02", "KV-SYS-03", "KV-SYS-05", "KV-SYS-06"),
        "it is about containers and books beside the state, which the reference has none of; monitors look at systems",
    ),
    Exemption(
        "monitor",
        ("KV-OP-16", "KV-OP-20", "KV-OP-26"),
        "lockstep sees what it comes to, another hit, another answer or another table, and names it by that",
    ),
    Exemption(
        "known bug",
        (
            "KV-INV-09",
            "KV-OP-06",
            "KV-OP-07",
            "KV-OP-11",
            "KV-OP-13",
            "KV-OP-14",
            "KV-OP-19",
            "KV-OP-21",
            "KV-MEM-02",
            "KV-SYS-03",
            "KV-SYS-05",
            "KV-SYS-06",
        ),
        "no public report of such a defect is known to us",
    ),
    *(
        Exemption(
            kind,
            ("KV-SYS-04",),
            "it is about two runs of one program: the reference looks at no chance, no mutant does and no report is of "
            "one; systems that do are planted in the tests",
        )
        for kind in ("proof", "explorer", "planted fault", "known bug")
    ),
)
