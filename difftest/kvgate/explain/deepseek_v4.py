"""DeepSeek-V4's groups, of which vLLM and vLLM-Ascend make different ones.

The kinds of groups and their sizes are the reference's (``kvreference.compressed``). What is reckoned here is over how
many groups the layers are dealt out: as many as pad the fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from attrs import evolve

from kvgate.explain.config_file import DUMP_INSTEAD, Config
from kvgate.explain.layers import Grouping, Placed
from kvgate.explain.serving import Platform, Serving
from kvgate.kernel.errors import UsageError
from kvreference.compressed import ASCEND_BLOCK_SIZES, C4, C128, STATE_WINDOWS, dsv4_flash, dsv4_flash_ascend
from kvreference.geometry import Geometry, Group

MODEL_TYPE = "deepseek_v4"
_PAGE_ALIGNMENT_BYTES = 576
_LATENT_SLOT_BYTES = 584
"""What a slot of latent attention takes, its scales included."""
_INDEXER_SLOT_BYTES = 132
_DRAFT_LAYERS = 1


def grouping(config: Config, serving: Serving) -> Grouping:
    """The groups of the model as it is served.

    Raises:
        UsageError: a compress ratio, a window or a block size that the layouts known here do not have.
    """
    ratios = config.numbers("compress_ratios", config.layers)
    if ratios is None:
        raise UsageError(f"{config.path}: {MODEL_TYPE} needs compress_ratios, and they are not there")
    counts = Counter(max(1, ratio) for ratio in ratios)
    drafted = config.number("num_nextn_predict_layers", _DRAFT_LAYERS) if serving.looks_ahead else 0
    window = config.number("sliding_window")
    if set(counts) - {1, C4, C128} or not counts[C4] or not counts[C128]:
        raise UsageError(f"{config.path}: compress ratios of {sorted(counts)} are not known here: {DUMP_INSTEAD}")
    slides = config.layers + drafted
    flagged = bool(drafted)
    if serving.platform is Platform.ASCEND:
        return _on_ascend(serving, counts, slides, flagged, window)
    return _on_gpu(serving, counts, slides, flagged, window)


def _on_gpu(serving: Serving, counts: Counter[int], slides: int, flagged: bool, window: int) -> Grouping:
    mla, first, _, c4_state, c128_state = _windowed(dsv4_flash(), window)
    tokens = serving.block_size or mla.block_size_tokens
    if tokens % C128:
        raise UsageError(f"--block-size {tokens}: DeepSeek-V4 needs a multiple of {C128} tokens on a GPU")
    tuples = _tuples([counts[C4], slides, counts[C4], counts[C128]])
    groups = [
        Placed(evolve(mla, block_size_tokens=tokens), 2 * counts[C4] + counts[C128], "C4, its indexer, C128"),
        *_dealt(first, slides, tuples, flagged),
        *_dealt(c4_state, counts[C4], tuples, label=f"C4 state, window {STATE_WINDOWS[C4]}"),
        *_dealt(c128_state, counts[C128], tuples, label=f"C128 state, window {STATE_WINDOWS[C128]}"),
    ]
    return Grouping(tuple(groups), tuples * sum(_page_bytes(tokens)))


def _on_ascend(serving: Serving, counts: Counter[int], slides: int, flagged: bool, window: int) -> Grouping:
    size = serving.block_size or max(ASCEND_BLOCK_SIZES)
    try:
        geometry = dsv4_flash_ascend(size)
    except ValueError as error:
        raise UsageError(f"--block-size: {error}, which is what vLLM-Ascend has for DeepSeek-V4") from error
    c4, c128, first, _, c4_state, c128_state = _windowed(geometry, window)
    tuples = _tuples([counts[C4], counts[C128], slides, counts[C4], counts[C128]])
    groups = [
        Placed(c4, 2 * counts[C4], "C4, its indexer"),
        Placed(c128, counts[C128], "C128"),
        *_dealt(first, slides, tuples, flagged),
        *_dealt(c4_state, counts[C4], tuples, label="C4 state"),
        *_dealt(c128_state, counts[C128], tuples, label="C128 state"),
    ]
    return Grouping(tuple(groups), 0)


def _windowed(geometry: Geometry, window: int) -> Iterator[Group]:
    """The groups, with the model's own window in those of the attention."""
    usual = max(group.window_tokens or 0 for group in geometry.groups[:4])
    for index, group in enumerate(geometry.groups):
        states = index >= len(geometry.groups) - len(STATE_WINDOWS)
        is_window = group.window_tokens == usual and not states
        yield evolve(group, window_tokens=window) if is_window else group


def _dealt(group: Group, layers: int, tuples: int, flagged: bool = False, label: str = "") -> Iterator[Placed]:
    """``layers`` layers over groups of at most ``tuples``; a draft layer comes last, and only its group is flagged."""
    parts = -(-layers // tuples)
    for part in range(parts):
        drafted = flagged and (layers - 1) % parts == part
        words = label or ("sliding window" + (", with the draft layer" if drafted else ""))
        yield Placed(evolve(group, lookahead=drafted), len(range(part, layers, parts)), words)


def _tuples(counts: Sequence[int]) -> int:
    """Over how many layers the pool's memory is shared: where the least is padded, the larger the better."""
    least = counts[0]
    return min(
        range(least, max(counts) + 1),
        key=lambda size: (sum(-count % size for count in counts), -size),
    )


def _page_bytes(block_tokens: int) -> Iterator[int]:
    """How many bytes a block takes in a C4 layer, in its indexer, and in a C128 layer."""
    for slots, slot_bytes in (
        (block_tokens // C4, _LATENT_SLOT_BYTES),
        (block_tokens // C4, _INDEXER_SLOT_BYTES),
        (block_tokens // C128, _LATENT_SLOT_BYTES),
    ):
        yield -(-slots * slot_bytes // _PAGE_ALIGNMENT_BYTES) * _PAGE_ALIGNMENT_BYTES
