"""Rows of cells, as SVG: readable in light and in dark, and by a screen reader.

A cell is a block or a range of tokens. Its colour and its text both say what it is, so that no information is in the
colour only. The file needs no font, script or style from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from types import MappingProxyType

from attrs import field, frozen

WIDTH, MARGIN = 520, 14
CELL_HEIGHT, CELL_WIDTH_MAX = 28, 44
LABEL_CHARACTERS_MAX = 76
"""What fits into one line of a picture."""


@frozen
class Colour:
    """How one kind of cell looks: the fill in light and in dark, and the dashes of its border."""

    light: str
    dark: str
    dashes: str = ""


LIGHT_TEXT, DARK_TEXT = "#1b1f24", "#f0f3f6"
LIGHT_PAPER, DARK_PAPER = "#ffffff", "#1d2127"
KINDS: Mapping[str, Colour] = MappingProxyType(
    {
        "held": Colour("#bcd7f7", "#1f4b80"),
        "cached": Colour("#bfe5c4", "#1f5a30"),
        "scratch": Colour("#e3e6ea", "#454c55"),
        "hit": Colour("#8fd3c7", "#0f5f56"),
        "needed": Colour("#ffe08a", "#6a5200"),
        "copied": Colour("#f6c3dd", "#7a2c55"),
        "pinned": Colour("#d9c8f5", "#55388c"),
        "external": Colour("#fdd0ae", "#7a4013"),
        "lost": Colour("#f5b8b8", "#7c2626", "4 2"),
        "null": Colour(LIGHT_PAPER, DARK_PAPER, "2 3"),
        "free": Colour(LIGHT_PAPER, DARK_PAPER),
    }
)
"""What a cell can be."""


@frozen
class Cell:
    """One block, or one stretch of tokens."""

    text: str = field(converter=str)
    kind: str
    span: float = 1
    """How wide it is, in the unit of its row."""


@frozen
class Row:
    """Cells in a row under a label."""

    label: str
    cells: Sequence[Cell]


@frozen
class Picture:
    """What is drawn, and its text for a screen reader."""

    title: str
    description: str
    rows: Sequence[Row]
    meanings: Mapping[str, str]
    """Kind of cell to what it means here: the legend."""

    def __attrs_post_init__(self) -> None:
        used = {cell.kind for row in self.rows for cell in row.cells}
        if used != set(self.meanings) or not used <= set(KINDS):
            raise ValueError(f"the legend must explain {sorted(used)}, and explains {sorted(self.meanings)}")
        long = [row.label for row in self.rows if len(row.label) > LABEL_CHARACTERS_MAX]
        if long:
            raise ValueError(f"does not fit into a line: {long[0]}")


def svg(picture: Picture) -> str:
    """The picture as a file."""
    body: list[str] = []
    y = MARGIN
    # One scale for all rows: what is as wide is as long.
    unit = min(CELL_WIDTH_MAX, (WIDTH - 2 * MARGIN) / max(sum(cell.span for cell in row.cells) for row in picture.rows))
    for row in picture.rows:
        y += 14
        body.append(f'<text x="{MARGIN}" y="{y}" class="label">{escape(row.label)}</text>')
        y += 6
        body += _cells(row, y, unit)
        y += CELL_HEIGHT + 10
    y += 4
    for kind, meaning in picture.meanings.items():
        body.append(f'<rect x="{MARGIN}" y="{y}" width="16" height="12" class="{kind}"/>')
        body.append(f'<text x="{MARGIN + 24}" y="{y + 10}" class="label">{escape(meaning)}</text>')
        y += 19
    height = y + MARGIN - 6
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-labelledby="title description">',
        f'<title id="title">{escape(picture.title)}</title>',
        f'<desc id="description">{escape(picture.description)}</desc>',
        f"<style>{''.join(_style(set(picture.meanings)))}</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" class="paper"/>',
    )
    return "\n".join((*head, *body, "</svg>", ""))


def _cells(row: Row, y: int, unit: float) -> Iterator[str]:
    x = float(MARGIN)
    for cell in row.cells:
        width = cell.span * unit
        place = f'x="{x:.1f}" y="{y}" width="{width - 2:.1f}" height="{CELL_HEIGHT}"'
        yield f'<rect {place} rx="3" class="{cell.kind}"/>'
        if cell.text:
            yield f'<text x="{x + width / 2 - 1:.1f}" y="{y + 19}" class="cell">{escape(cell.text)}</text>'
        x += width


def _style(used: set[str]) -> Iterator[str]:
    yield "text{font:12.5px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}.cell{text-anchor:middle}"
    yield f"text{{fill:{LIGHT_TEXT}}}rect{{stroke:#6b7480;stroke-width:1}}"
    yield f".paper{{fill:{LIGHT_PAPER};stroke:#c9ced6}}"
    for kind, colour in KINDS.items():
        if kind in used:
            dashes = f";stroke-dasharray:{colour.dashes}" if colour.dashes else ""
            yield f".{kind}{{fill:{colour.light}{dashes}}}"
    yield "@media(prefers-color-scheme:dark){"
    yield f"text{{fill:{DARK_TEXT}}}rect{{stroke:#9aa4b0}}.paper{{fill:{DARK_PAPER};stroke:#3a414b}}"
    yield from (f".{kind}{{fill:{colour.dark}}}" for kind, colour in KINDS.items() if kind in used)
    yield "}"
