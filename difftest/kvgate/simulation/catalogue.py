"""Workloads by name: ``repeat-rate:input_tokens=32768,lanes=8`` is a generator and what it is called with."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import evolve

from kvgate.kernel.errors import UsageError
from kvgate.simulation.workload import Workload

WORKLOADS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "repeat-rate": ("kvgate.simulation.generators:repeat_rate", "prompts that share a part of each, a benchmark"),
        "second": ("kvgate.simulation.generators:second_workload", "the same with 32k tokens in, 1k out, 32 at once"),
        "replays": ("kvgate.simulation.generators:replays", "long prompts, then the first of them again"),
        "fractions": ("kvgate.simulation.generators:fractions", "long prompts, then a part of each again"),
        "prefixes": ("kvgate.simulation.generators:shared_prefixes", "a sweep over documents that are asked about"),
        "mooncake": ("kvgate.simulation.traces.mooncake:mooncake", "a recorded trace in Mooncake's format"),
        "weka": ("kvgate.simulation.traces.weka:weka", "recorded sessions of coding agents"),
        "requests": ("kvgate.simulation.traces.requests:requests_log", "a log of requests, as OpenAI's API takes them"),
        "agents": ("kvgate.simulation.generators:agents", "conversations of many turns after one system prompt"),
    }
)
"""Per name, the function that makes it, and what it is."""

_TRUTHS = {"yes": True, "true": True, "no": False, "false": False}


def generator(name: str, workloads: Mapping[str, tuple[str, str]] = WORKLOADS) -> Callable[..., Workload]:
    """The function that makes the workloads called ``name``.

    Raises:
        UsageError: the generator is unknown.
    """
    if name not in workloads:
        raise UsageError(f"no workload {name!r}: there are {', '.join(workloads)}")
    module, _, function = workloads[name][0].partition(":")
    found: Callable[..., Workload] = getattr(importlib.import_module(module), function)
    return found


def workload_of(text: str, workloads: Mapping[str, tuple[str, str]] = WORKLOADS) -> Workload:
    """The workload that ``text`` names; it is called what was typed, so that no two of them share a name.

    Raises:
        UsageError: it names none, or calls it with what it does not take; says what it does.
    """
    name, _, given = text.partition(":")
    make = generator(name, workloads)
    known = {each.name: _kind(each) for each in inspect.signature(make).parameters.values()}
    arguments: dict[str, Any] = {}
    for part in given.split(",") if given else ():
        key, equals, value = part.partition("=")
        if key not in known or not equals:
            takes = ", ".join(f"{each}={kind}" for each, kind in known.items())
            raise UsageError(f"workload {text!r}: {part!r} is nothing that {name} takes: {takes}")
        if key in arguments:
            raise UsageError(f"workload {text!r}: {key} is given twice")
        arguments[key] = _value(text, key, value, known[key])
    try:
        return evolve(make(**arguments), name=text)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(f"workload {text!r}: {error}") from error


def options(name: str, workloads: Mapping[str, tuple[str, str]] = WORKLOADS) -> str:
    """What a workload takes, with its default."""
    return ", ".join(
        each.name if each.default is inspect.Parameter.empty else f"{each.name}={_spelt(each.default)}"
        for each in inspect.signature(generator(name, workloads)).parameters.values()
    )


def _spelt(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "…" if value is None else str(value)


def _kind(parameter: inspect.Parameter) -> str:
    """How a value is written, after the annotation: a string, since annotations are not evaluated."""
    annotation = str(parameter.annotation)
    for kind in ("bool", "float", "int"):
        if annotation.startswith(kind):
            return kind
    return "text"


def _value(text: str, key: str, value: str, kind: str) -> object:
    try:
        if kind == "bool":
            return _TRUTHS[value.lower()]
        if kind == "int":
            return int(value)
        return float(value) if kind == "float" else value
    except (KeyError, ValueError) as error:
        raise UsageError(f"workload {text!r}: {key} must be {kind}, not {value!r}") from error
