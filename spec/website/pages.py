"""The parts of the site: the repository's pages where they are, and the code that they link to.

The site has the same tree as the repository, so every relative link of a page works in both. Code becomes a page of its
own. A file that no page links to is left out. A hook of MkDocs; see ``mkdocs.yml``.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

PAGES = (
    "*.md",
    "docs/*.md",
    "spec/*.md",
    "impl/*.md",
    "difftest/*.md",
    "difftest/*/*.md",
    "difftest/kvgate/findings/**/*.md",
    "benchmarks/*.md",
    "benchmarks/*/*.md",
)
ASSETS = ("spec/website/look.css", "spec/website/filter.js")
WIDE = ("benchmarks/RECORD.md", "benchmarks/TABLE.md")
"""Pages of tables with many columns: they get the room of the table of contents. So does a page with a data file."""
GITHUB = "https://github.com"
OWNERS = {"": "vllm-project/vllm", "vllm": "vllm-project/vllm", "vllm-ascend": "vllm-project/vllm-ascend"}
"""The repositories whose names are shortened. GitHub leads from an issue's address to a pull request's."""
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_UNTOUCHED = re.compile(
    r"(^```.*?^```|`[^`\n]*`|\[[^\]\n]*\]\([^)\n]*\)|https?://\S+|^\[[^\]]+\]:.*$)", re.MULTILINE | re.DOTALL
)
"""What holds no issue number to be linked: code, and what is a link."""
_ISSUE = re.compile(r"(?<![\w/.#&-])((?:[\w.-]+/)?[A-Za-z][\w.-]*)?#(\d{2,6})\b")
_DATA = re.compile(r"\]\(([\w.@-]+\.csv)\)")
_TARGET = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def linked(root: Path, page: Path) -> Iterator[Path]:
    """The files that a page links to, from ``root``."""
    for target, _ in _TARGET.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target:
            yield (page.parent / target).resolve().relative_to(root.resolve())


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages, and all that they link to."""
    root = Path(config.config_file_path).parent
    pages = sorted({path for pattern in PAGES for path in root.glob(pattern)})
    targets = {target for page in pages for target in linked(root, page) if (root / target).is_file()}
    # Files that MkDocs found by itself in the folder of the specification appear here under another name.
    site = Files([file for file in files if file.src_dir != config.docs_dir])
    names = {page.relative_to(root).as_posix() for page in pages}.union(ASSETS)
    for name in sorted(names | {target.as_posix() for target in targets}):
        if name.endswith(".py"):
            content = f"# {name}\n\n```python\n{(root / name).read_text(encoding='utf-8')}```\n"
            site.append(File.generated(config, f"{name}.md", content=content))
        else:
            site.append(File(name, str(root), config.site_dir, config.use_directory_urls))
    return site


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """``markdown`` with its issue numbers as links, the rows of its data files, and links to the pages of code."""
    del files
    here = Path(config.config_file_path).parent / page.file.src_uri
    if page.file.src_uri.endswith(".py.md"):
        page.meta["search"] = {"exclude": True}
    shown = dict.fromkeys(_DATA.findall(markdown))
    page.meta["hide"] = [
        *(["toc"] if shown or page.file.src_uri in WIDE else []),
        *([] if page.ancestors else ["navigation"]),
    ]
    for name in shown:
        before, link, after = markdown.partition(f"]({name})")
        rest_of_paragraph, _, rest = after.partition("\n\n")
        markdown = f"{before}{link}{rest_of_paragraph}\n{rows_of(here.with_name(name))}\n{rest}"
    parts = _UNTOUCHED.split(markdown)
    linked_parts = (part if place % 2 else _ISSUE.sub(_issue, part) for place, part in enumerate(parts))
    parts = re.split(r"(^```.*?^```)", "".join(linked_parts), flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else re.sub(r"(\]\([^)\s#]+\.py)\)", r"\1.md)", part) for part in parts
    )


def _issue(found: re.Match[str]) -> str:
    """The link of an issue, if its repository is known; a plain number is vLLM's if it has four digits or more."""
    named, number = found[1] or "", found[2]
    repository = OWNERS.get(named, named if "/" in named else None)
    if repository is None or (not named and len(number) < 4):
        return found[0]
    return f"[{found[0]}]({GITHUB}/{repository}/issues/{number})"


def rows_of(data: Path) -> str:
    """The rows of a data file as a table that can be searched; guarantees and findings are links."""
    names, *rows = csv.reader(io.StringIO(data.read_text(encoding="utf-8")))
    lines = [names, ["---"] * len(names), *([_cell(cell, data.parent) for cell in row] for row in rows)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f'\n<div class="searchable" markdown="block">\n\n{table}\n\n</div>\n'


def _cell(text: str, folder: Path) -> str:
    root = Path(__file__).parents[2]
    up = Path(os.path.relpath(root, folder)).as_posix()
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    text = re.sub(r"\bKV-[A-Z]+-\d\d\b", lambda id_: f"[{id_[0]}]({up}/spec/statements.md#{id_[0].lower()})", text)
    finding = f"difftest/kvgate/findings/f{text.replace('-', '_')}/README.md"
    return f"[{text}]({up}/{finding})" if re.match(r"\d{3}-", text) and (root / finding).is_file() else text
