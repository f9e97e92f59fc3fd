"""The pictures: generated from the results of the worked examples, current, and readable for all."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kvspec.chapters import Chapter, parse, read_all
from kvspec.pictures.gallery import PICTURES, path_of, render_picture, write
from kvspec.pictures.svg import (
    MARGIN,
    WIDTH,
    Cell,
    Picture,
    Row,
    svg,
)

from .lints import SPEC

CHAPTERS = read_all()

each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)


@each_chapter
def test_pictures_are_current(chapter: Chapter) -> None:
    """Goal: a picture shows what the example found. Method: draw again, and compare."""
    written = (SPEC / path_of(chapter)).read_text(encoding="utf-8")
    assert render_picture(chapter) == written, "run: python -m kvspec.pictures"


def test_there_are_no_others() -> None:
    """Goal: a removed chapter leaves no picture. Method: compare with the chapters."""
    assert {path_of(chapter) for chapter in CHAPTERS} == {f"pictures/{path.name}" for path in SPEC.glob("pictures/*")}
    assert {chapter.name for chapter in CHAPTERS} == set(PICTURES)


CHANGES = [
    ("01", "Run(0, 40)", "Run(0, 24)"),
    ("02", "Run(2000, 20)", "Run(2000, 40)"),
    ("03", "apply(Evict(2))", "apply(Evict(3))"),
    ("04", 'Group("sliding_window", 16, 64)', 'Group("sliding_window", 16, 48)'),
    ("05", "evicted = 8", "evicted = 7"),
    ("06", "Sparse(geometry, 32), Sparse(geometry, 0)", "Sparse(geometry, 64), Sparse(geometry, 0)"),
    ("07", 'Group("sliding_window", 16, 64, lookahead=True)', 'Group("sliding_window", 16, 32, lookahead=True)'),
    ("08", "(20000, 40000)", "(20000, 50000)"),
    ("09", "Arrive(1, (Run(0, 40),))", "Arrive(1, (Run(0, 20),))"),
    ("10", "Run(1000, 84)", "Run(1000, 100)"),
    ("11", "external_tokens=368", "external_tokens=352"),
    ("12", "chunk_tokens=48", "chunk_tokens=32"),
    ("13", "external_tokens=64", "external_tokens=48"),
]


@pytest.mark.ci
@pytest.mark.parametrize(("number", "old", "new"), CHANGES, ids=[number for number, _, _ in CHANGES])
def test_a_changed_example_is_another_picture(number: str, old: str, new: str) -> None:
    """Goal: a picture depends on its example. Method: change one value, assert nothing, draw."""
    chapter = next(each for each in CHAPTERS if each.number == number)
    text = (SPEC / chapter.file).read_text(encoding="utf-8")
    assert old in text
    changed = parse(chapter.file, re.sub(r"^( *)assert ", r"\1_ = ", text.replace(old, new), flags=re.MULTILINE))
    assert (SPEC / path_of(chapter)).read_text(encoding="utf-8") != render_picture(changed)


@each_chapter
def test_a_picture_says_what_it_shows(chapter: Chapter) -> None:
    """Goal: it can be heard as well as seen, and needs nothing from elsewhere. Method: read it as XML."""
    text = (SPEC / path_of(chapter)).read_text(encoding="utf-8")
    root = ET.fromstring(text)
    named = {element.tag.rpartition("}")[2]: (element.get("id"), element.text) for element in root}
    assert ("title", "description") == (named["title"][0], named["desc"][0])
    assert named["title"][1]
    assert named["desc"][1]
    assert ("img", "title description") == (root.get("role"), root.get("aria-labelledby"))
    assert [] == re.findall(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(|<script", text)
    for element in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(element.get("x", 0)) + float(element.get("width", 0)) <= WIDTH


ROW = Row("a row", [Cell(1, "held")])


@pytest.mark.parametrize(
    ("rows", "meanings", "message"),
    [
        ([ROW], {}, "the legend must explain"),
        ([ROW], {"held": "held", "free": "free"}, "the legend must explain"),
        ([Row("a row", [Cell(1, "loved")])], {"loved": "loved"}, "the legend must explain"),
        ([Row("a" * 80, [Cell(1, "held")])], {"held": "held"}, "does not fit into a line: aaa"),
    ],
)
def test_a_picture_that_says_too_little_or_too_much_is_rejected(
    rows: list[Row], meanings: dict[str, str], message: str
) -> None:
    """Goal: every colour is explained, every label fits. Method: a colour too few, too many, unknown; a long label."""
    with pytest.raises(ValueError, match=message):
        Picture("title", "description", rows, meanings)


def test_words_are_words_in_a_picture() -> None:
    """Goal: no label becomes markup. Method: angle brackets; and wide rows are made to fit."""
    picture = Picture("<t>", "a & b", [Row("<b>", [Cell("<c>", "held", 100)])], {"held": "<held>"})
    root = ET.fromstring(svg(picture))
    assert "<t>" == root[0].text
    widths = [float(element.get("width", 0)) for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert WIDTH - 2 * MARGIN - 2 == widths[1]


def test_all_are_written(tmp_path: Path) -> None:
    """Goal: the command that the first page names draws them. Method: write them next to a copy of the chapters."""
    (tmp_path / "pictures").mkdir()
    for chapter in CHAPTERS:
        shutil.copy(SPEC / chapter.file, tmp_path)
    write(tmp_path)
    for chapter in CHAPTERS:
        assert (SPEC / path_of(chapter)).read_text(encoding="utf-8") == (tmp_path / path_of(chapter)).read_text("utf-8")
