"""The limits in SECURITY.md.

Goal: the page agrees with the code. Method: the table is made of the constants, and compared. ``python
tests/security/test_limits.py`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvgate.campaigns import plan, results
from kvgate.explain import config_file, dump
from kvgate.explain import reports as explained
from kvgate.kernel import models, text, trace_lines
from kvgate.levels.scheduler import level
from kvgate.live import server
from kvgate.report import document
from kvgate.shadow import recording, status
from kvgate.simulation import generators, workload
from kvgate.simulation.traces import lines, weka
from kvgate_mutants.corpus import passing

PAGE = Path(__file__).parents[2] / "SECURITY.md"
BEGIN, END = "<!-- limits: python tests/security/test_limits.py -->\n", "<!-- end of limits -->"
LIMITS: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = (
    (
        "a trace, of any level",
        (
            ("bytes", trace_lines.FILE_BYTES_MAX),
            ("bytes of a line", trace_lines.LINE_BYTES_MAX),
            ("operations", trace_lines.OPERATIONS_MAX),
            ("blocks", trace_lines.BLOCKS_MAX),
            ("groups", trace_lines.GROUPS_MAX),
            ("tokens of all prompts, of a request, of a block", trace_lines.TOKENS_MAX),
            ("pieces of content", trace_lines.GRAINS_MAX),
            ("drafts", trace_lines.DRAFTS_MAX),
            ("blocks by operations", trace_lines.WORK_MAX),
            ("requests and steps at once, of a scheduler", level.PLACES_MAX),
            ("replies of a step", level.REPLIES_MAX),
        ),
    ),
    (
        "a recording",
        (
            ("bytes", recording.FILE_BYTES_MAX),
            ("bytes of a frame", recording.FRAME_BYTES_MAX),
            ("bytes of its header", recording.HEADER_BYTES_MAX),
            ("frames", recording.FRAMES_MAX),
        ),
    ),
    ("a shadow's status", (("bytes", status.FILE_BYTES_MAX), ("files that are reported", status.FILES_MAX))),
    (
        "a folder of `kvgate fuzz`",
        (("bytes of its manifest", plan.FILE_BYTES_MAX), ("bytes of a shard's result", results.BYTES_MAX)),
    ),
    ("a result of the corpus, from another process", (("bytes", passing.LINE_BYTES_MAX),)),
    ("a report", (("bytes", document.BYTES_MAX),)),
    (
        "a model file",
        (
            ("bytes", models.FILE_BYTES_MAX),
            ("groups", models.GROUPS_MAX),
            ("tokens of a window, or of the alignment", models.TOKENS_MAX),
        ),
    ),
    (
        "a `config.json`, a dump",
        (
            ("bytes", config_file.FILE_BYTES_MAX),
            ("layers", config_file.LAYERS_MAX),
            ("groups of a dump", dump.GROUPS_MAX),
        ),
    ),
    ("a report of a hit rate", (("bytes", explained.FILE_BYTES_MAX),)),
    (
        "a trace of requests, by Mooncake or WEKA",
        (
            ("bytes, once unpacked", lines.BYTES_MAX),
            ("tokens of a prompt, or of an answer", lines.TOKENS_MAX),
            ("sessions", weka.SESSIONS_MAX),
        ),
    ),
    (
        "a workload in words",
        (
            ("requests", generators.REQUESTS_MAX),
            ("sessions by turns squared", generators.PIECES_MAX),
            ("lanes", workload.LANES_MAX),
        ),
    ),
    ("a server's answer", (("bytes", server.ANSWER_BYTES_MAX), ("seconds", int(server.ANSWER_SECONDS_MAX)))),
    ("a text that is shown", (("characters", text.CHARACTERS_MAX),)),
)


def table() -> str:
    """All limits."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "| | at most |"
    yield "|---|---|"
    for what, limits in LIMITS:
        yield f"| {what} | {'; '.join(f'{number:,} {unit}' for unit, number in limits)} |"


def test_the_page_says_the_limits() -> None:
    """Goal and method: as above."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    assert table() == rest.partition(END)[0], "run: python tests/security/test_limits.py"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}", encoding="utf-8")
