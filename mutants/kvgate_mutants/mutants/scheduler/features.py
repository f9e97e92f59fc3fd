"""The mutants of features.txt: small edits of vLLM's source where a scheduler's features meet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

from kvgate_mutants.mutants.mutant import Edit, Mutant

_ENTRY = re.compile(
    r"(?P<name>\S+) (?P<violates>\S+)(?P<needs>.*)\n"
    r"(?P<sentence>.*)\n"
    r"@ (?P<target>.*)\n"
    r"(?P<edit>(?:[-+] .*\n)+)"
    r"(?:= (?P<before>.*)\n)?"
)


def mutants_of(text: str) -> Iterator[Mutant]:
    """The mutants of a file in the form of features.txt.

    Raises:
        ValueError: an entry is not of this form, or names an unknown guarantee or need.
    """
    for entry in re.split(r"\n{2,}", text.strip()):
        if entry.startswith("#"):
            continue
        found = _ENTRY.fullmatch(entry + "\n")
        if found is None:
            raise ValueError(f"not a mutant:\n{entry}")
        passage, instead = (
            "\n".join(line[2:] for line in found["edit"].splitlines() if line[0] == sign) for sign in "-+"
        )
        yield Mutant(
            name=found["name"],
            sentence=found["sentence"],
            statement=found["violates"],
            targets=("vllm.v1." + found["target"],),
            broken=Edit(passage, instead),
            needs=tuple(found["needs"].split()),
            before=found["before"],
        )


FEATURE_MUTANTS = tuple(mutants_of(files(__package__).joinpath("features.txt").read_text("utf-8")))
