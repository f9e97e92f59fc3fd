"""The kernel block sizes of the vLLM-Ascend that is installed, and what the doctor says of them.

Goal: an operator reads which compressed block sizes the worker starts with, before it is started. Method: sources with
sizes of their own, on the path.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from swa_retention import doctor
from swa_retention.compressed.kernel_blocks import READ, describe, sizes_in

ONE = "class AscendDSABackend:\n    @staticmethod\n    def get_supported_kernel_block_sizes():\n        return {0}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The back-end of a vLLM-Ascend that is found, and not imported."""
    file = tmp_path / "vllm_ascend" / "attention" / "dsa_v1.py"
    file.parent.mkdir(parents=True)
    (tmp_path / "vllm_ascend" / "__init__.py").write_text("raise ImportError('it needs an NPU')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return file


@pytest.mark.parametrize(
    ("source", "sizes"),
    [
        (ONE.format("[8, 32, 128]"), (8, 32, 128)),
        (ONE.format("[MultipleOf(16)]"), None),
        (ONE.format("[8]") + ONE.format("[16]"), None),
        (ONE.format("[8] if small else [16]"), None),
        (ONE.format("8"), None),
        ("class AscendDSABackend: ...\n", None),
    ],
)
def test_sizes_are_read_where_there_is_one_list(source: str, sizes: tuple[int, ...] | None) -> None:
    """Where they depend on something, they are not known."""
    assert sizes == sizes_in(source)


def test_a_size_is_supported_if_every_group_is() -> None:
    """Those that 0.20.2rc1 lists, and those that 0.23.0 does."""
    by_plug_in = "added by this plug-in, for vLLM-Ascend lists none of"
    small = "2 slots in the state of C4 layers"
    states = "4 slots in the state of C4 layers, 16 slots in the state of C128 layers"
    assert [
        f"compressed blocks of 32 slots: {by_plug_in} {small}; {READ}",
        f"compressed blocks of 64 slots: {by_plug_in} 64 slots in compressed attention, 64 slots in sliding windows, "
        f"{states}; {READ}",
        "compressed blocks of 128 slots: supported",
    ] == list(describe((8, 32, 128)))
    assert all(line.endswith("slots: supported") for line in describe((2, 4, 8, 16, 32, 64, 128)))


def test_the_doctor_says_what_is_listed(home: Path) -> None:
    """And where the worker can be run."""
    home.write_text(ONE.format("[8, 32, 128]"), encoding="utf-8")
    lines = doctor._kernels()
    assert "for torch_npu is not installed; without an NPU, pytest difftest/ --npu-sim" in lines[1]
    assert "  kernel blocks of 8, 32, 128 slots" == lines[2]
    assert 6 == len(lines)


def test_sizes_that_are_not_known(home: Path) -> None:
    """None is reported as supported."""
    home.write_text(ONE.format("sizes_of(hardware)"), encoding="utf-8")
    assert "  its source does not list one set of kernel block sizes: none was checked" == doctor._kernels()[-1]
