"""All pictures: which function draws which chapter's example, and where the file stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvspec.chapters import EXAMPLE, HOME, Chapter, read_all
from kvspec.pictures import blocks, hits, moving
from kvspec.pictures.drawing import Picture, svg

Found = Mapping[str, Any]
"""The names that an example's program leaves behind, with their values."""

PICTURES: Mapping[str, Callable[[Found], Picture]] = MappingProxyType(
    {
        "blocks-and-references": blocks.shared_tables,
        "free-queue": blocks.two_queues,
        "content-and-cached-map": blocks.duplicates,
        "attention-kinds": hits.what_each_kind_reads,
        "hit-lookup": hits.one_lost_block,
        "retention": hits.what_is_kept,
        "eagle": hits.the_block_behind,
        "compressed-groups": hits.large_blocks,
        "partial-hits": moving.a_copy,
        "pinned-tier": blocks.one_demoted,
        "scheduler-progress": moving.two_loads,
        "kv-events": moving.what_is_told,
        "external-tokens": moving.hit_and_external,
    }
)
"""Chapter to its picture, by the chapter's name."""


def run(chapter: Chapter) -> Found:
    """The names that the worked example of ``chapter`` leaves behind."""
    found: dict[str, Any] = {"__name__": "example"}
    for heading, code in chapter.programs():
        if heading == EXAMPLE:
            exec(compile(code, f"{chapter.file}: {EXAMPLE}", "exec"), found)
    return found


def drawn(chapter: Chapter) -> str:
    """The picture of ``chapter``, as a file."""
    return svg(PICTURES[chapter.name](run(chapter)))


def path_of(chapter: Chapter) -> str:
    """Where the picture of ``chapter`` stands, from the folder of the chapters."""
    return f"pictures/{chapter.file.removesuffix('.md')}.svg"


def write(home: Path = HOME) -> None:
    """Draw all pictures anew."""
    for chapter in read_all(home):
        (home / path_of(chapter)).write_text(drawn(chapter), encoding="utf-8")
