"""A mutant: one deliberate break of vLLM's block manager, applied as a monkey patch and always undone.

A mutant is written as a function decorated with ``breaks``. The function stands in for each of its targets and gets
the original as its first argument; its name is the mutant's name, its docstring the one sentence that says what is
broken, its file the area. Or it is an ``Edit``: a passage of one function, and what stands there instead. vLLM is
imported when a mutant is applied, not before.

What a mutant breaks while a system is built stays broken in that system, so build the system inside ``applied()``.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from types import CodeType, MappingProxyType, ModuleType
from typing import Any, Literal

from attrs import field, frozen
from attrs.validators import deep_iterable, in_, matches_re, min_len, optional

from kvgate.levels.scheduler.operations import OPTIONS
from kvgate.levels.tiers.adapter.own import HOSTED, choose_hosted
from kvgate.levels.tiers.level import CONNECTOR
from kvreference.statements import STATEMENTS

NEEDS = MappingProxyType(
    {
        "asynchronous": "a scheduler that does not wait for the output of a step before it schedules the next",
        "priority": "a scheduler that serves by priority",
        "transfers": "a scheduler whose requests other nodes offer something, and read",
        "connector=simple": "SimpleCPUOffloadConnector",
        "connector=multi": "a MultiConnector with OffloadingConnector and SimpleCPUOffloadConnector",
        "connector=nixl": "a MultiConnector with NixlConnector and OffloadingConnector",
        "connector=tiering": "OffloadingConnector with a tier of files below the host",
        "connector=lmcache": "LMCache's connector",
        "connector=ascend-store": "vLLM-Ascend's AscendStoreConnector",
        "adapter": "requests with the same tokens and different LoRA adapters",
        "chunks": "prompts that are computed in several steps",
        "clients": "requests of several clients, each of which gets its own outputs",
        "common-prefix": "the common prefix is asked for",
        "draft-model": "a model of its own that drafts",
        "drafts": "draft tokens are proposed",
        "duplicates": "requests that compute the same content side by side",
        "eagle": "a group with a draft layer",
        "embeddings": "requests whose prompts are embeddings, some of them equal in part",
        "encoder": "multimodal items that an encoder computes, within a budget, into an encoder cache",
        "encoder-decoder": "a model that decodes with cross-attention on what an encoder computed",
        "evict": "blocks are evicted by their ids",
        "events": "the events are taken",
        "failed-loads": "transfers of which some blocks fail to load",
        "grammar": "requests whose answers follow a grammar",
        "media": "requests with the same tokens and different multimodal items",
        "near-twins": "requests whose tokens differ in the last token of a block",
        "messages": "what clients are sent besides tokens and ends is compared",
        "no-gate": "a system without the admission gate, so that a first chunk can be rejected",
        "no-kv-cache": "a model whose layers attend within a step, so that nothing is kept",
        "no-read": "requests that may not be served from the cache",
        "pause": "the scheduler is paused",
        "pooling": "requests that pool and generate nothing",
        "preemption": "requests are preempted, and end or are preempted again later",
        "published": "the published events are compared",
        "reset": "the cache is reset",
        "reset-running": "the cache is reset while requests run, which preempts them",
        "salt": "requests with the same tokens and different cache salts",
        "sessions": "requests that continue with further prompts after they stopped",
        "slots": "more LoRA adapters than a step may use",
        "statistics": "the statistics are taken",
        "stops": "requests with stop tokens and a minimum length",
        "token-limit": "running requests that come close to the longest that a request may become",
        "zeroing": "a worker that zeroes new blocks",
        # A scheduler with an option.
        **{name.replace("_", "-"): option.words for name, option in OPTIONS.items()},
    }
)
"""What a run must contain to have a chance to show a mutant, besides ordinary requests that share prefixes."""

HYBRID = ("gemma-hybrid", "gpt-oss-hybrid", "two-windows", "mixed-blocks")
"""The model presets with full attention and sliding windows."""
WINDOWED = ("swa", *HYBRID)
"""The model presets with a sliding window."""
FULL = ("full", *HYBRID)
"""The model presets with full attention."""

Broken = Callable[..., Any]
"""Stands in for a target: called with the original, then with the target's own arguments."""


@frozen
class Edit:
    """A passage of a function, as ``ast.unparse`` prints the function, and what stands there instead.

    Of several lines, all but the first are indented relative to the line in which the passage begins.
    """

    passage: str
    instead: str

    def of(self, source: str) -> str:
        """The source of a function after the edit.

        Raises:
            LookupError: the function does not contain the passage exactly once.
        """
        text = ast.unparse(ast.parse(textwrap.dedent(source)))
        begins = self.passage.partition("\n")[0]
        edited = []
        for found in re.finditer(re.escape(begins), text):
            before, after = text[: found.start()], text[found.start() :]
            line = before.rpartition("\n")[2] + begins
            indent = "\n" + " " * (len(line) - len(line.lstrip()))
            passage = self.passage.replace("\n", indent)
            if after.startswith(passage):
                edited.append(before + self.instead.replace("\n", indent) + after[len(passage) :])
        if len(edited) != 1:
            raise LookupError(f"{len(edited)} passages, not one: {self.passage}")
        return edited[0]

    @contextmanager
    def applied(self, member: Any) -> Iterator[None]:
        """Change the code of the function itself, so that it is broken wherever its name was imported to."""
        function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        original = function.__code__
        function.__code__ = _edited(function, self)
        try:
            yield
        finally:
            function.__code__ = original


@cache
def _edited(function: Any, edit: Edit) -> CodeType:
    # A function that calls super() reads the cell __class__ of its class, and its own name is a global's.
    # What wraps a function of vLLM has that one's name and source; its code has its own.
    name = function.__code__.co_name
    head = f"def scope():\n    global {name}\n    __class__ = None\n"
    scope = head + textwrap.indent(edit.of(inspect.getsource(function.__code__)), "    ")
    file = f"<{function.__qualname__}, edited {len(linecache.cache)}>"
    # What reads the source of a function, as proofs do that cut its loops, reads that of the edited one.
    linecache.cache[file] = len(scope), None, scope.splitlines(keepends=True), file
    (outer,) = _codes(compile(scope, file, "exec"))
    (code,) = (code for code in _codes(outer) if code.co_name == name)
    return code


def _codes(outer: CodeType) -> list[CodeType]:
    return [each for each in outer.co_consts if isinstance(each, CodeType)]


Check = Callable[[], str | None]
"""Exercises what no operation of the alphabet reaches; returns what is wrong, or None."""


@frozen
class Mutant:
    """One break, with what is known about it.

    Raises:
        ValueError: a name that is not kebab-case, an unknown statement or need, neither a statement nor a check.
    """

    name: str = field(validator=matches_re(r"[a-z0-9]+(-[a-z0-9]+)*"))
    sentence: str = field(validator=min_len(1))
    """What is broken, in one sentence."""
    statement: str | None = field(validator=optional(in_(STATEMENTS)))
    """The id of the guarantee that it violates; None if no guarantee speaks of it, and a check shows it."""
    targets: tuple[str, ...] = field(validator=min_len(1))
    """What is replaced, each as ``module:name`` or ``module:Class.name``."""
    broken: Broken | Edit = field(repr=False)
    models: tuple[str, ...] | None = None
    """The models that can show it, by their presets or whole names; None for all."""
    needs: tuple[str, ...] = field(default=(), validator=deep_iterable(in_(NEEDS)))
    """What a run must contain to have a chance to show it; see ``NEEDS``."""
    equivalent: str | None = None
    """Why it cannot be distinguished from the original, if that is so."""
    survives: str | None = None
    """Why it is not found, if it could be."""
    probes: tuple[str, ...] = ()
    """Of a mutant of our own code: what is run to show it; see ``kvgate_mutants.own_code_run``."""
    before: str | None = None
    """What became of it when it was written, before the generators knew of it."""
    shown_by: Check | None = None
    """What shows it where the block manager's operations do not: the run is then this check, and no campaign."""

    def __attrs_post_init__(self) -> None:
        if (self.statement is None) != (self.shown_by is not None):
            raise ValueError(f"{self.name}: a mutant violates a guarantee, or is shown by a check")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break vLLM in this process until the context is left, however it is left.

        Raises:
            LookupError: this vLLM has no such target; nothing is broken then.
        """
        with ExitStack() as undo:
            for need in self.needs:
                if need.removeprefix(CONNECTOR) in HOSTED:
                    choose_hosted(need.removeprefix(CONNECTOR))
            for target in self.targets:
                owner, attribute = locate(target)
                original = vars(owner)[attribute]
                if isinstance(self.broken, Edit):
                    undo.enter_context(self.broken.applied(original))
                    continue
                undo.callback(setattr, owner, attribute, original)
                setattr(owner, attribute, _in_place_of(original, self.broken))
            yield


def _in_place_of(original: Any, broken: Broken) -> Any:
    """The broken function in the form of ``original``, so that it is called in the same way."""
    if isinstance(original, classmethod):
        return classmethod(_in_place_of(original.__func__, broken))

    def replacement(*arguments: Any, **named: Any) -> Any:
        return broken(original, *arguments, **named)

    return replacement


def vllms_own(patched: Any) -> Callable[..., Any]:
    """The function of vLLM that a patch of the plug-in replaced: a mutant that calls it leaves the patch out."""
    replaced: Callable[..., Any] = patched.__swa_retention__
    return replaced


def mutants_in(areas: Iterable[ModuleType]) -> tuple[Mutant, ...]:
    """All mutants of these files, in their order."""
    return tuple(mutant for area in areas for mutant in vars(area).values() if isinstance(mutant, Mutant))


MODEL = "model="
"""Before the name of a model that shows a mutant, among its words."""
_ENTRY = re.compile(
    r"(?P<name>\S+) (?P<violates>\S+)(?P<words>.*)\n"
    r"(?P<sentence>.*)\n"
    r"@ (?P<target>.*)\n"
    r"(?P<edit>(?:[-+] .*\n)+)"
    r"(?:= (?P<before>.*)\n)?"
    r"(?:~ (?P<equivalent>.*)\n)?"
    r"(?:\? (?P<survives>.*)\n)?"
)


def mutants_of(text: str, root: str = "", words: Literal["needs", "probes"] = "needs") -> Iterator[Mutant]:
    """The edits of a file in the form of scheduler/features.txt, as mutants.

    Targets are named from ``root`` on; what follows the guarantee are the mutant's ``words``: its needs or probes, and
    the models that show it if not all do.

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
        every = found["words"].split()
        given = tuple(word for word in every if not word.startswith(MODEL))
        models = tuple(word[len(MODEL) :] for word in every if word.startswith(MODEL))
        yield Mutant(
            name=found["name"],
            sentence=found["sentence"],
            statement=found["violates"],
            targets=(root + found["target"],),
            broken=Edit(passage, instead),
            models=models or None,
            before=found["before"],
            equivalent=found["equivalent"],
            survives=found["survives"],
            needs=given if words == "needs" else (),
            probes=given if words == "probes" else (),
        )


def locate(target: str) -> tuple[object, str]:
    """The module or class that owns ``target``, and the attribute's name there.

    Raises:
        LookupError: this vLLM has no such target.
    """
    module, _, path = target.partition(":")
    *outer, attribute = path.split(".")
    try:
        owner: object = import_module(module)
        for name in outer:
            owner = getattr(owner, name)
        vars(owner)[attribute]
    except (ImportError, AttributeError, KeyError) as error:
        raise LookupError(f"this vLLM has no {target}") from error
    return owner, attribute


def breaks(
    *targets: str,
    violates: str | None = None,
    models: tuple[str, ...] | None = None,
    needs: tuple[str, ...] = (),
    equivalent: str | None = None,
    shown_by: Check | None = None,
) -> Callable[[Broken], Mutant]:
    """Make a mutant of the decorated function, which then stands in for each of ``targets``."""

    def as_mutant(broken: Broken) -> Mutant:
        return Mutant(
            name=broken.__name__.replace("_", "-"),
            sentence=" ".join((inspect.getdoc(broken) or "").split()),
            statement=violates,
            targets=targets,
            broken=broken,
            models=models,
            needs=needs,
            equivalent=equivalent,
            shown_by=shown_by,
        )

    return as_mutant
