"""All obligations, by their ids, module by module."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from kvspec import proofs
from kvspec.obligation import Obligation


def modules() -> list[str]:
    """The modules of ``kvspec.proofs``, by name."""
    return sorted(each.name for each in pkgutil.iter_modules(proofs.__path__))


@cache
def obligations() -> Mapping[str, Obligation]:
    """Id to obligation: those of every module of ``kvspec.proofs``.

    Raises:
        ValueError: two have the same id.
    """
    found: dict[str, Obligation] = {}
    for module in modules():
        for obligation in importlib.import_module(f"{proofs.__name__}.{module}").OBLIGATIONS:
            if obligation.id in found:
                raise ValueError(f"two obligations are called {obligation.id}")
            found[obligation.id] = obligation
    return MappingProxyType(found)
