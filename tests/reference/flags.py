"""Flags: which fields are some, and in which functions of a source they are tested.

A *flag* is a field that is on or off, or that may be left out: ``bool``, or something ``| None``. A parameter or a
field of another class that carries it under the same name, and is again on or off or left out, is the same flag.

It is *tested* where its value is read, but for two cases:

- in a validator, which rejects contradictory values and decides nothing;
- where it is passed on unchanged, as an argument of a call: then the called function decides. A call of a built-in
  function decides here and now.

Types are not inferred. Whose attribute is read is known if it is ``self``, or a parameter with a class as annotation;
in all other cases an attribute of that name counts. A flag that is passed on under another name is not followed.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import get_args, get_type_hints

import attrs


def flags_of(*classes: type) -> set[str]:
    """The fields of attrs classes that are flags."""
    return {
        field.name
        for each in classes
        for field in attrs.fields(each)
        if (hint := get_type_hints(each)[field.name]) is bool or NoneType in get_args(hint)
    }


def _words(annotation: ast.expr | None) -> set[str]:
    """The names in an annotation, ``None`` among them."""
    nodes = ast.walk(annotation) if annotation else ()
    return {str(getattr(node, "id", getattr(node, "value", ""))) for node in nodes}


def _is_flag(annotation: ast.expr | None) -> bool:
    return annotation is None or bool({"bool", "None"} & _words(annotation))


class _Scan(ast.NodeVisitor):
    """The functions of one module that test a flag."""

    def __init__(self, module: str, flags: Iterable[str], others: set[tuple[str, str]]) -> None:
        self.flags = set(flags)
        self.others = others
        """Fields that are no flags, by class and name."""
        self.found: dict[str, set[str]] = defaultdict(set)
        self.scope = [module]
        self.owners: dict[str, set[str]] = {}
        """The parameters in sight, with the classes that they may be of."""
        self.parameters: set[str] = set()
        """Those in sight that are flags by name and annotation."""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if any(isinstance(each, ast.Attribute) and each.attr == "validator" for each in node.decorator_list):
            return
        before = self.owners, self.parameters
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self.owners = {**self.owners, **{each.arg: _words(each.annotation) for each in given}}
        self.owners["self"] = {self.scope[-1]}
        named = {each.arg for each in given if each.arg in self.flags and _is_flag(each.annotation)}
        self.parameters = self.parameters - {each.arg for each in given} | named
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()
        self.owners, self.parameters = before

    def visit_Call(self, node: ast.Call) -> None:
        self.visit(node.func)
        decides = isinstance(node.func, ast.Name) and node.func.id in vars(builtins)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if decides or not isinstance(argument, (ast.Name, ast.Attribute)):
                self.visit(argument)
            elif isinstance(argument, ast.Attribute):
                self.visit(argument.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in self.flags and isinstance(node.ctx, ast.Load):
            owners = self.owners.get(node.value.id, set()) if isinstance(node.value, ast.Name) else set()
            if not any((owner, node.attr) in self.others for owner in owners):
                self._tested(node.attr)
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.parameters and isinstance(node.ctx, ast.Load):
            self._tested(node.id)

    def _tested(self, flag: str) -> None:
        self.found[flag].add(".".join(self.scope))


def places(sources: Mapping[str, str], flags: Iterable[str]) -> dict[str, set[str]]:
    """Per flag, the functions in which it is tested; ``sources`` are the texts of modules, by name."""
    trees = {module: ast.parse(source) for module, source in sources.items()}
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = [(each.name, field) for each in classes for field in each.body if isinstance(field, ast.AnnAssign)]
    others = {
        (name, field.target.id)
        for name, field in fields
        if isinstance(field.target, ast.Name) and not _is_flag(field.annotation)
    }
    found: dict[str, set[str]] = {flag: set() for flag in flags}
    for module, tree in trees.items():
        scan = _Scan(module, found, others)
        scan.visit(tree)
        for flag, functions in scan.found.items():
            found[flag] |= functions
    return found
