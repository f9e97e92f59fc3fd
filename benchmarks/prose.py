"""How plain the project's English is: words, long sentences, and words that are to be retired.

Read are the Markdown pages, the help texts of the commands, and the docstrings and comments of all packages. Code,
tables' cells of code, links, and quotations (a line after ">", or words in quotation marks) do not count.

    python -m benchmarks.prose            # a line for each kind of text, and the words found
    python -m benchmarks.prose --list     # each long sentence and each retired word, with its place
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen
from benchmarks.running import ROOT

LONG_WORDS = 30
RETIRED = (
    *(
        "told",
        "tells",
        "goes on",
        "refused",
        "ways",
        "it is judged",
        "whoever",
        "whatever",
        "somebody",
        "nobody",
        "mends",
        "mended",
        "given up",
    ),
    *("given away", "handed out", "let in", "parked", "exactly if", "for ever", "is no", "judges"),
    *("gets on", "a fault is planted", "planted", "behind", "beside"),
)
"""What CONTRIBUTING.md has other words for. "behind" and "beside" are right of places, not of time and order."""
_CODE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`", re.DOTALL)
_QUOTED = re.compile(r'“[^”]*”|"[^"\n]*(?:\n(?!\s*\n)[^"\n]*)?"|^>.*$', re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z`*])|\n\s*\n|\n\s*[-*|]|\|")


@frozen
class Text:
    """A piece of prose, and where it stands."""

    kind: str
    path: str
    line: int
    text: str


def pages() -> Iterator[Path]:
    """The files that the repository holds."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    yield from (ROOT / name for name in listed.splitlines())


def texts() -> Iterator[Text]:
    """All prose of the repository."""
    for path in pages():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".md":
            yield Text("pages", name, 1, path.read_text(encoding="utf-8"))
        elif path.suffix == ".py":
            yield from _of_code(name, path.read_text(encoding="utf-8"))


def _of_code(name: str, source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Text("docstrings", name, node.lineno, node.value.value)
    comment, last = list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("#!", "# type:")):
            continue
        if comment and token.start[0] != last + 1:
            yield Text("comments", name, last, " ".join(comment))
            comment = []
        comment.append(token.string.lstrip("# "))
        last = token.start[0]
    if comment:
        yield Text("comments", name, last, " ".join(comment))


def help_texts() -> Iterator[Text]:
    """What each command prints with --help."""
    from typer.main import get_command

    from kvgate.cli.app import app

    command = get_command(app)
    for name, each in sorted(getattr(command, "commands", {}).items()):
        options = "\n\n".join(str(getattr(option, "help", "") or "") for option in each.params)
        yield Text("help", f"kvgate {name}", 1, f"{each.help or ''}\n\n{options}")


def plain(text: str) -> str:
    """A text without code, quotations and the targets of links; code stands for one word."""
    return _LINK.sub(r"\1", _QUOTED.sub(" ", _CODE.sub("X", text)))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a plain text that have words."""
    for each in _END.split(text):
        words = re.findall(r"[A-Za-z][\w'-]*", each)
        if len(words) > 2:
            yield " ".join(each.split())


def retired(text: str) -> Counter[str]:
    """The retired words of a plain text, and how often."""
    lower = " ".join(text.lower().split())
    # Hyphens are of names, such as that of a finding. "There is no" and "is no longer" are plain.
    lower = re.sub(r"\bthere is no\b|\bis no (?=more|less|longer)", " ", lower)
    found = ((word, len(re.findall(rf"(?<![\w-]){re.escape(word)}(?![\w-])", lower))) for word in RETIRED)
    return Counter({word: times for word, times in found if times})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="each long sentence and retired word, with its place")
    parser.add_argument("paths", nargs="*", help="only files below these")
    options = parser.parse_args(arguments)
    words, total, long, found = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for each in (*texts(), *help_texts()):
        if options.paths and not each.path.startswith(tuple(options.paths)):
            continue
        text = plain(each.text)
        words[each.kind] += len(re.findall(r"\w+", text))
        here = retired(text)
        found += here
        for sentence in sentences(text):
            total[each.kind] += 1
            count = len(re.findall(r"[A-Za-z][\w'-]*", sentence))
            if count > LONG_WORDS:
                long[each.kind] += 1
                if options.list:
                    print(f"{each.path}:{each.line}: {count} words: {sentence}")
        if options.list and here:
            print(f"{each.path}:{each.line}: {', '.join(here)}")
    print("text          words  sentences  over 30 words")
    for kind in words:
        share = 100 * long[kind] / max(1, total[kind])
        print(f"{kind:10} {words[kind]:8,} {total[kind]:10,} {share:13.1f} %")
    print("retired words:", ", ".join(f"{word} {times}" for word, times in found.most_common()) or "none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
