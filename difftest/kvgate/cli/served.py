"""Models as they are served: a preset, or a ``config.json`` with the flags of ``vllm serve`` after ``--``."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvgate.cli import explain
from kvgate.kernel.errors import UsageError

if TYPE_CHECKING:
    from kvgate.explain.serving import Serving
    from kvgate.kernel.models import Model

ServingFlags = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- FLAGS",
        help="With a config.json: the flags it is served with, as kvgate explain takes them.",
    ),
]


def flags_of(words: Sequence[str] | None) -> list[str]:
    """What stands after ``--``.

    Raises:
        UsageError: it does not begin with a flag.
    """
    flags = list(words or ())
    if flags and not flags[0].startswith("-"):
        raise UsageError(f"unexpected argument {flags[0]!r}; what vllm serve takes stands after --, as --block-size 32")
    return flags


def serving_from(flags: Sequence[str], version: str | None, ascend: bool = False) -> tuple[Serving, set[str]]:
    """What ``flags`` say of a server, and which of its fields; ``version`` is of vLLM, or None for the installed one.

    Raises:
        UsageError: a flag that ``kvgate explain`` does not take, or a value that it cannot have.
    """
    reader = typer.Typer(add_completion=False)
    reader.command(add_help_option=False)(explain.explain)
    try:
        context = typer.main.get_command(reader).make_context("kvgate explain", ["model", *flags])
    except _NOT_TAKEN as error:
        raise UsageError(f"after --: {error.format_message()} (kvgate explain --help lists the flags)") from error
    given = {name for name in context.params if _is_given(context, name)} - {"model"}
    for name in ("snippet", "plot", "output", "prompt_tokens", "shared_tokens"):
        if name in given:
            raise UsageError(f"after --: --{name.replace('_', '-')} is no flag of a server")
    params = {**context.params, "platform": context.params["platform"] if "platform" in given else _PLATFORM[ascend]}
    if "version" not in given:
        params["version"] = version
    params["version"] = explain.version_of(params["version"], params["platform"] == _PLATFORM[True])
    return explain.serving_of(params), given


_PLATFORM = ("gpu", "ascend")
_NOT_TAKEN: Any = typer.BadParameter.__mro__[1]
"""What a flag ends with that is not taken: of click, or of the click that some releases of typer have themselves."""


def _is_given(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def models_of(
    names: Sequence[str], flags: Sequence[str], version: str | None, ascend: bool = False, used: Container[str] = ()
) -> tuple[list[Model], Serving | None]:
    """The models called ``names``, as ``flags`` serve them on that vLLM, and the server; without a config.json none.

    ``used`` are the fields of a server that have an effect besides those that change the models.

    Raises:
        UsageError: there is no such model, or it cannot be served so; or flags that no config.json is there for.
    """
    from kvgate.explain.load import model_of

    asked: list[Serving] = []

    def served() -> Serving:
        if not asked:
            serving, given = serving_from(flags, version, ascend)
            unused = sorted(name for name in given - _OF_MODELS if name not in used)
            if unused:
                flags_unused = ", ".join("--" + name.replace("_", "-") for name in unused)
                typer.echo(f"without effect here: {flags_unused}", err=True)
            asked.append(serving)
        return asked[0]

    models = [model_of(name, served) for name in names]
    if flags and not asked:
        raise UsageError("flags after -- are those that a config.json is served with: give one with --model")
    return models, asked[0] if asked else None


def models_on(sut: str, names: Sequence[str], flags: Sequence[str]) -> list[Model]:
    """The models as they are served on a system under test."""
    system, _, version = sut.partition("@")
    return models_of(names, flags, version or None, system.startswith("ascend"))[0]


_OF_MODELS = {
    *("version", "platform", "block_size", "speculative_config", "mtp", "retention"),
    *(
        "disable_hybrid_kv_cache_manager",
        "mamba_cache_mode",
        "enable_prefix_caching",
        "tensor_parallel_size",
        "kv_cache_dtype",
    ),
}
"""The flags that change a model's groups, or what stays cached."""
