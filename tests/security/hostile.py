"""Values and bytes that break programs: numbers at the edges of types, text that is not text, nesting, repetition."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from attrs import frozen

DEPTH = 20_000
"""Deeper than any parser that recurses goes."""
DIGITS = 5000
"""More than Python turns into a number."""


@frozen
class Verbatim:
    """JSON that no value stands for; it is put into a document as it is."""

    text: str


NUMBERS: tuple[Any, ...] = (
    *(-(2**63) - 1, -(2**31), -1, 0, 1, 2, 3, 4, 7, 16, 64, 255, 1024),
    *(2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**12, 10**15, 10**18, 10**100),
    *(-0.0, 0.5, 1.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")),
)
TEXTS = (
    *("", " ", "0", "1", "-1", "true", "null", "nan", "\uff11\uff12", "1_000", "0x10"),
    *("\x00", "\n", "\r\n", "\x1b[2J", "\u2028", "\u202e", "\ud800", "\udfff\ud800", "\U0010ffff", "é", "ﬁ"),
    *("</script><script>alert(1)</script>", "\"'&<>", "${x}", "{{ 7 * 7 }}", "%s%n", "$(id)", "`id`", "; id", "|id"),
    *("../../../etc/passwd", "/dev/zero", "a" * 300, "a" * 20_000, "+" * 500, "=" * 500, "," * 2000),
    *("full", "sliding_window", "mamba", "align", "all", "none", "auto", "check", "record"),
)
VERBATIM = (
    Verbatim("9" * DIGITS),
    Verbatim(f"-{'9' * 4000}"),
    Verbatim("1e999"),
    Verbatim("-1e999"),
    Verbatim("1E+2"),
    Verbatim("[" * DEPTH),
    Verbatim("[" * 400 + "]" * 400),
    Verbatim('{"a":' * DEPTH),
    Verbatim('{"a":' * 300 + "1" + "}" * 300),
    Verbatim('{"a":1,"a":2}'),
    Verbatim('"\\ud800"'),
    Verbatim('"\\u0000"'),
    Verbatim("undefined"),
)
TOKENS = (
    *(b"\x00", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\xaf", b"\x80" * 9, b"\n", b"\r", b"\t"),
    *(b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b",", b":", b"#", b"\n\n\n", b" " * 999, b"9" * DIGITS, b"[" * DEPTH),
    *(b"NaN", b"+Inf", b"-Infinity", b"1e999", b"null", b"# TYPE a b\n", b"\xe2\x80\xa8"),
)
PACKED = (
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc1"),
    *(b"\x91" * DEPTH, b"\x81" * DEPTH, b"\xc9\xff\xff\xff\xff\x01", b"\xd4\x01\x00", b"\xcf" + b"\xff" * 8, b"\xc0"),
    *(b"\xca\x7f\xc0\x00\x00", b"\xdc\xff\xff" + b"\xc0" * 65_535, b"\x90", b"\x80", b"\xa0"),
)
"""MessagePack that announces more than there is, nests without end, or is of an unexpected type."""


def value(chance: Random) -> Any:
    """Anything at all, as a value or as JSON that stands for none; a small number every other time."""
    kind = chance.randrange(12)
    if kind < 5:
        return chance.choice((chance.randrange(8), chance.randrange(100), 2 ** chance.randrange(20)))
    if kind < 7:
        return chance.choice(NUMBERS)
    if kind < 9:
        return chance.choice(TEXTS)
    if kind == 9:
        return chance.choice(VERBATIM)
    plain: tuple[Any, ...] = (True, False, None, [], {}, [[]], [0] * 5000, {"groups": []}, {"a": {"b": [None]}})
    return chance.choice(plain)


def spelt(document: Any) -> bytes:
    """A document as JSON, with everything verbatim in its place."""
    verbatim: list[str] = []

    def stand_in(each: object) -> str:
        assert isinstance(each, Verbatim), "all others are values"
        verbatim.append(each.text)
        return f"verbatim {len(verbatim) - 1} in its place"

    text = json.dumps(document, default=stand_in)
    for number, each in enumerate(verbatim):
        text = text.replace(f'"verbatim {number} in its place"', each)
    return text.encode("utf-8", "surrogatepass")
