"""What the site is made of: the repository's pages where they are, and the code that they link to.

The site has the same tree as the repository, so every relative link of a page works in both. Code becomes a page of its
own. What no page links to is left out. A hook of MkDocs; see ``mkdocs.yml``.
"""

from __future__ import annotations

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
)
LOOK = "spec/website/look.css"
WIDE = (
    "difftest/corpus/README.md",
    "spec/traceability.md",
    "benchmarks/headlines/TABLE.md",
    "benchmarks/RECORD.md",
    "benchmarks/TABLE.md",
)
"""Pages of tables with many columns: they get the room of the table of contents."""
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def linked(root: Path, page: Path) -> Iterator[Path]:
    """The files that a page links to, from ``root``."""
    for target, _ in _TARGET.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target:
            yield (page.parent / target).resolve().relative_to(root.resolve())


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages, and whatever they link to."""
    root = Path(config.config_file_path).parent
    pages = sorted({path for pattern in PAGES for path in root.glob(pattern)})
    targets = {target for page in pages for target in linked(root, page) if (root / target).is_file()}
    # What MkDocs found by itself in the folder of the specification stands here under another name.
    site = Files([file for file in files if file.src_dir != config.docs_dir])
    names = {page.relative_to(root).as_posix() for page in pages} | {LOOK}
    for name in sorted(names | {target.as_posix() for target in targets}):
        if name.endswith(".py"):
            content = f"# {name}\n\n```python\n{(root / name).read_text(encoding='utf-8')}```\n"
            site.append(File.generated(config, f"{name}.md", content=content))
        else:
            site.append(File(name, str(root), config.site_dir, config.use_directory_urls))
    return site


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """``markdown`` with its links to code as links to the pages of that code."""
    del config, files
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else re.sub(r"(\]\([^)\s#]+\.py)\)", r"\1.md)", part) for part in parts
    )
