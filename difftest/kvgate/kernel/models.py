"""Model geometries: named presets, each with the published configuration it stands for, or a JSON file.

Long windows are scaled down, so that prompts of a few hundred tokens cross them many times: what breaks is the edge of
a window, not its length. The block size is 16 tokens unless said otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from attrs import evolve, field, frozen

from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import DOCUMENT_ERRORS, explain, read_bytes, strict_converter
from kvgate.kernel.variants import FEATURES, GEOMETRIES, Features, read
from kvreference.attention import Kind
from kvreference.compressed import ASCEND_BLOCK_SIZES, dsv4_flash, dsv4_flash_ascend
from kvreference.geometry import Geometry, Group
from kvreference.mamba import StateMode

FILE_BYTES_MAX = 1_000_000
GROUPS_MAX = 64
TOKENS_MAX = 131_072
"""The longest window and the longest alignment: prompts are many times as long."""


@frozen
class Model:
    """A geometry with a name, and where its numbers come from."""

    name: str
    geometry: Geometry
    source: str
    features: Features = field(factory=Features)

    def with_lookahead(self) -> Model:
        """The same model with an EAGLE/MTP draft layer in every group: what vLLM assumes if no group is flagged.

        No draft layer lives in a state-space group.
        """
        return self.varied("eagle")

    def varied(self, suffixes: str) -> Model:
        """The same model with the mechanisms that ``suffixes`` name; see ``kvgate.kernel.variants``.

        Raises:
            ValueError: no such suffix, or one that does not fit the model.
        """
        geometry, features = read(self.geometry, suffixes, self.features)
        return evolve(self, name=f"{self.name}+{suffixes}", geometry=geometry, features=features)


_FULL = Group(Kind.FULL, 16)


_STATES = Group(Kind.MAMBA, 16, states=StateMode.ALIGN, draft_states=4)


def _window(tokens: int) -> Group:
    return Group(Kind.SLIDING_WINDOW, 16, tokens)


MODELS = {
    model.name: model
    for model in (
        Model(
            "full",
            Geometry((_FULL,)),
            "Llama-3.1-8B: 32 layers of full attention, no sliding window; one group.",
        ),
        Model(
            "swa",
            Geometry((_window(64),)),
            "Mistral-7B-v0.1: 32 layers with sliding_window 4096, scaled to 64; one group.",
        ),
        Model(
            "gemma-hybrid",
            Geometry((*(_window(64),) * 5, _FULL)),
            "gemma-3-12b: 48 layers, sliding_window_pattern 6, sliding_window 1024, scaled to 64; five groups of eight "
            "sliding-window layers and one of eight full ones, the full one last.",
        ),
        Model(
            "gpt-oss-hybrid",
            Geometry((_window(128), _FULL)),
            "gpt-oss-20b: 24 layers, sliding_window 128 and full attention in turn, sliding first; two groups.",
        ),
        Model(
            "two-windows",
            Geometry((_FULL, _window(64), _window(128))),
            "No published model: full attention and two different windows, the smallest geometry on which vLLM's "
            "look-up needs more than one round.",
        ),
        Model(
            "mixed-blocks",
            Geometry((Group(Kind.FULL, 32), _window(64))),
            "No published model: groups whose block sizes differ, as vLLM makes them to equalise page sizes.",
        ),
        Model(
            "mixed-windows",
            Geometry((_FULL, Group(Kind.SLIDING_WINDOW, 32, 64))),
            "No published model: the blocks of the window are larger than those of full attention.",
        ),
        Model(
            "windows",
            Geometry((_window(64), _window(128))),
            "No published model: two different windows, and no full attention.",
        ),
        Model(
            "dsv4-flash",
            dsv4_flash(),
            "DeepSeek-V4-Flash as vLLM 0.20.2 groups it: compressed MLA 256 tokens, two sliding windows, C4 and C128 "
            "compressor state; 128-token windows, nothing scaled.",
        ),
        *(
            Model(
                f"dsv4-flash-ascend-{size}",
                dsv4_flash_ascend(size),
                f"DeepSeek-V4-Flash as vLLM-Ascend 0.20.2rc groups it with --block-size {size}: C4, C128, two sliding "
                "windows, C4 and C128 compressor state; nothing scaled.",
            )
            for size in ASCEND_BLOCK_SIZES
        ),
        Model(
            "compressed",
            Geometry(
                (
                    Group(Kind.FULL, 32, compress_ratio=4),
                    Group(Kind.FULL, 64, compress_ratio=16),
                    _window(32),
                    Group(Kind.SLIDING_WINDOW, 4, 8),
                )
            ),
            "DeepSeek-V4-Flash on Ascend in small: compress ratios 4 and 16, one sliding window, one compressor state.",
        ),
        Model(
            "compressed-8-slots",
            Geometry(
                (
                    Group(Kind.FULL, 32, compress_ratio=4),
                    Group(Kind.FULL, 512, compress_ratio=16),
                    Group(Kind.SLIDING_WINDOW, 32, 32),
                    Group(Kind.SLIDING_WINDOW, 8, 8),
                )
            ),
            "DeepSeek-V4-Flash on Ascend in small, with blocks that its kernels have: 8 or 32 slots.",
        ),
        Model(
            "compressed-64-slots",
            Geometry(
                (
                    Group(Kind.FULL, 256, compress_ratio=4),
                    Group(Kind.FULL, 512, compress_ratio=8),
                    Group(Kind.SLIDING_WINDOW, 64, 32),
                    Group(Kind.SLIDING_WINDOW, 8, 8),
                )
            ),
            "The same with blocks of 64 slots, each of them two blocks of the kernels.",
        ),
        Model(
            "blocks-of-128",
            Geometry((Group(Kind.FULL, 128), Group(Kind.SLIDING_WINDOW, 128, 128))),
            "gpt-oss-20b with the blocks that vLLM-Ascend's kernels have.",
        ),
        Model(
            "local",
            Geometry((_FULL, Group(Kind.CHUNKED_LOCAL, 16, 64))),
            "Llama 4: attention chunks of 8192 tokens, scaled to 64; one chunked-local and one full group.",
        ),
        *(
            Model(
                f"mamba-{mode.value}",
                Geometry((_FULL, Group(Kind.MAMBA, size, states=mode, draft_states=4))),
                f"A Mamba hybrid with states in mode {mode.value}, room for four drafts in flight.",
            )
            for mode, size in ((StateMode.NONE, 4096), (StateMode.ALL, 16), (StateMode.ALIGN, 16))
        ),
        Model(
            "mamba-alone",
            Geometry((_STATES,)),
            "Mamba-2: state-space layers, and no attention.",
        ),
        Model(
            "mamba-window",
            Geometry((_STATES, _window(64), _FULL)),
            "No published model: states, a sliding window and full attention.",
        ),
    )
}
"""The presets, by name."""

GATED = ("full", "swa", "gemma-hybrid", "gpt-oss-hybrid", "mixed-blocks")
"""The gate's default models: the published ones, and block sizes that differ."""


def load(name: str, read: Callable[[Path], Model] | None = None) -> Model:
    """The model called ``name``: a preset or the path of a JSON file, with suffixes (``PRESET+eagle``) or without.

    The file holds ``{"groups": [{"kind": "full", "block_size_tokens": 16}, {"kind": "sliding_window",
    "block_size_tokens": 16, "window_tokens": 64, "lookahead": true}]}``. ``read`` reads other files.

    Raises:
        UsageError: neither a preset nor a readable file of that form.
    """
    base, _, suffixes = name.partition("+")
    model = MODELS.get(base) if "/" not in name else None
    if model is None:
        base, suffixes = _path_in(name, Path.exists if read else Path.is_file)
        if not base:
            raise UsageError(
                f"unknown model {name!r}: give one of {', '.join(MODELS)} (with +eagle for a draft layer in every "
                f"group; other suffixes: {', '.join(word for word in (*GEOMETRIES, *FEATURES) if word != 'eagle')}), "
                f"or the path of a JSON file{' of groups, or of a config.json' if read else ''}"
            )
        model = (read or of_groups)(Path(base))
    try:
        return model if base == name else model.varied(suffixes)
    except ValueError as error:
        raise UsageError(f"model {name!r}: {error}") from error


def _path_in(name: str, is_there: Callable[[Path], bool]) -> tuple[str, str]:
    """What is there of a path with suffixes, and the suffixes: a path may have a plus of its own."""
    ends = [len(name), *(place for place in range(len(name) - 1, 0, -1) if name[place] == "+")]
    try:
        end = next((each for each in ends if name[:each] and is_there(Path(name[:each]))), 0)
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror}") from error
    return name[:end], name[end + 1 :]


def of_groups(path: Path) -> Model:
    """The model whose groups the file at ``path`` lists.

    Raises:
        UsageError: it does not.
    """
    return Model(path.stem, _read(path), f"read from {path.name}")


def _read(path: Path) -> Geometry:
    try:
        document = json.loads(read_bytes(path, FILE_BYTES_MAX))
        if not isinstance(document, dict) or not isinstance(document.get("groups"), list):
            raise UsageError(f'{path}: a model file is an object with a list "groups"')
        if not 1 <= len(document["groups"]) <= GROUPS_MAX:
            raise UsageError(f"{path}: {len(document['groups'])} groups, and 1 to {GROUPS_MAX} are allowed")
        geometry: Geometry = _CONVERTER.structure(document, Geometry)
    except DOCUMENT_ERRORS as error:
        raise UsageError(f"{path}: {explain(error)}") from error
    refuse_long(path, geometry)
    return geometry


def refuse_long(path: Path, geometry: Geometry) -> None:
    """Reject windows and an alignment that no prompt of the gate could cross.

    Raises:
        UsageError: there is one.
    """
    longest = max(geometry.alignment_tokens, *(group.window_tokens or 0 for group in geometry.groups))
    if longest > TOKENS_MAX:
        raise UsageError(f"{path}: windows and the block sizes' common multiple may span at most {TOKENS_MAX} tokens")


_CONVERTER = strict_converter()
