"""The kernels and operators that vLLM-Ascend's worker and attention back-ends name, read from their source.

The source is not imported for this, so an operator cannot be missed because a stand-in has hidden it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

from kvgate.adapters.ascend_wheel import PACKAGE
from kvgate.adapters.ascend_wheel import WORKER as DRIVEN
from kvgate.adapters.model_runner.stand_ins import STAND_INS

MODULES = tuple(f"{each.replace('.', '/')}.py" for each in DRIVEN)
BACKEND = "attention/dsa_v1.py"
"""The back-end for DeepSeek-V4."""
WORKER = "worker/model_runner_v1.py"
_ROOTS = ("torch.ops.", "torch_npu.", "torch.npu.")
_KERNEL = "_kernel"


@frozen
class Limit:
    """How many slots the blocks of an operator's cache can have, as its source says."""

    operator: str
    groups: tuple[str, ...]
    """The kinds of groups that it reads or writes."""
    source: str
    """In the source archive."""
    says: str
    """What to look for there: a regular expression."""
    multiple_of: int = 1
    most: int | None = None

    def allows(self, slots: int) -> bool:
        """Whether a block of so many slots passes the operator's own check."""
        return slots > 0 and slots % self.multiple_of == 0 and (self.most is None or slots <= self.most)


_SOURCE = "csrc/attention/{0}/op_host/{0}_tiling.cpp"
LIMITS = (
    Limit(
        "npu_sparse_attn_sharedkv",
        ("mla", "sliding_window"),
        _SOURCE.format("sparse_attn_sharedkv"),
        r"block_size should be in[^\"]*\[1, 1024\], and be aligned to 16",
        16,
        1024,
    ),
    Limit(
        "npu_quant_lightning_indexer",
        ("mla",),
        _SOURCE.format("quant_lightning_indexer"),
        r"block_size must be a multiple of 16 and belong to \(0, 1024\]",
        16,
        1024,
    ),
    Limit(
        "compressor", ("c4_state", "c128_state"), _SOURCE.format("compressor"), r"blockSize should not be less than 1\b"
    ),
)
"""What the host side of the compiled operators of 0.20.2rc1 checks. Read from its source archive, and not run."""


@frozen
class Operator:
    """A kernel or operator."""

    name: str
    named: Mapping[str, int]
    """By module: in how many places."""
    interpreted: str = ""
    """How it is run on a CPU; empty if it is not."""
    replaced: str = ""
    """What stands in for it; empty if nothing does."""

    @property
    def never_run(self) -> bool:
        """Whether nothing on a CPU runs it or stands in for it."""
        return not self.interpreted and not self.replaced


def operators(folder: Path) -> list[Operator]:
    """All that the modules of a wheel name, in alphabetical order.

    Raises:
        OSError: a module is not there.
        SyntaxError: it is not Python.
    """
    named: dict[str, Counter[str]] = {}
    for module in MODULES:
        source = (folder / PACKAGE / module).read_text(encoding="utf-8")
        for name in names_in(source):
            named.setdefault(name, Counter())[module] += 1
    # What only one release names has its version after it.
    stand_ins = {each.name.partition(" (0.")[0].replace(":", "."): each for each in STAND_INS}
    found = []
    for name, places in sorted(named.items()):
        # A Triton kernel is listed with the module that it comes from.
        stand_in = next(
            (each for key, each in stand_ins.items() if f"{name}.".startswith(f"{key}.") or key.endswith(f".{name}")),
            None,
        )
        text = stand_in.by if stand_in else ""
        is_run = stand_in is not None and stand_in.interpreted
        found.append(Operator(name, places, text if is_run else "", "" if is_run else text))
    return found


def names_in(source: str) -> Iterator[str]:
    """Every place in a module that names an operator of torch_npu or of a library of torch, or a Triton kernel."""
    tree = ast.parse(source)
    # Of torch.ops.a.b, torch.ops.a is not an operator.
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in inner and _is_dotted(node):
            name = ast.unparse(node)
            # The library of torch.ops.library.operator is not an operator.
            if name.startswith(_ROOTS) and not (name.startswith(_ROOTS[0]) and name.count(".") < 3):
                yield name
        # Triton kernels are run by the grid: kernel[grid](...).
        elif isinstance(node, ast.Name) and node.id.endswith(_KERNEL) and node.id.startswith("_"):
            yield node.id


def _is_dotted(node: ast.expr) -> bool:
    """Whether an expression is names with points in between."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_dotted(node.value))
