"""Modules that are not imported yet: what their source says, and what is to be done once they are.

vLLM-Ascend changes vLLM by being imported, in an order of its own. So none of its modules is imported for the sake of a
patch: the patch is checked against the file, and put in place after vLLM-Ascend's own import of it.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import Factory, define


def installed(module: str) -> bool:
    """Whether there is such a module. The packages around it may be imported, it is not."""
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def source_of(target: str) -> tuple[str, bool] | None:
    """The source of ``module:Class.name`` as its file has it, and whether it is decorated; None if there is none."""
    module, _, path = target.partition(":")
    file = file_of(module)
    if file is None:
        return None
    text = file.read_text(encoding="utf-8")
    node: Any = ast.parse(text)
    for name in path.split("."):
        node = next((each for each in reversed(node.body) if getattr(each, "name", None) == name), None)
        if node is None:
            return None
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    lines = text.splitlines(keepends=True)[first - 1 : node.end_lineno]
    return "".join(lines), bool(node.decorator_list)


def file_of(module: str) -> Path | None:
    """Where the source of a module is; None if the module does not exist."""
    top, _, rest = module.partition(".")
    for root in _roots(top):
        base = Path(root, *rest.split(".")) if rest else Path(root, "__init__")
        for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            if file.is_file():
                return file
    return None


def _roots(package: str) -> Sequence[str]:
    """The folders of a top-level package: those of the imported one, if it is."""
    imported = sys.modules.get(package)
    if imported is not None:
        return list(getattr(imported, "__path__", ()))
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec else ()


@define
class _Watch(MetaPathFinder):
    """Finds nothing itself: it lets the others find a module, and acts after its execution."""

    waiting: dict[str, dict[str, Callable[[], object]]] = Factory(dict)
    """By module, and for each of its awaited symbols: what is to be done."""
    looking: set[str] = Factory(set)

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.waiting or fullname in self.looking:
            return None
        self.looking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.looking.discard(fullname)
        if spec is not None and spec.loader is not None:
            self._act_after(spec.loader, fullname)
        return spec

    def _act_after(self, loader: Any, fullname: str) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for action in self.waiting.pop(fullname, {}).values():
                action()

        loader.exec_module = exec_module


_WATCH = _Watch()


def when_imported(target: str, action: Callable[[], object]) -> None:
    """Do ``action`` after the import of the module of ``target``; it replaces an earlier action for the same symbol.

    It is done at once if the module was imported since it was looked for, as the search for others can do.
    """
    module = target.partition(":")[0]
    if module in sys.modules:
        action()
        return
    if _WATCH not in sys.meta_path:
        sys.meta_path.insert(0, _WATCH)
    _WATCH.waiting.setdefault(module, {})[target] = action


def forget(target: str) -> None:
    """Nothing is done any more when the module of ``target`` is imported."""
    _WATCH.waiting.get(target.partition(":")[0], {}).pop(target, None)
