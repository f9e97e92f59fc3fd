"""From what a user has, a preset, a ``config.json`` or a dump, to the layout of the cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from kvgate.adapters.kv_cache_dump import FORMAT, FORMAT_VERSION
from kvgate.explain import config_file, deepseek_v4, dump
from kvgate.explain.families import layers_of
from kvgate.explain.layers import PADDED_BELOW, Grouping, Layer, Placed, grouped
from kvgate.explain.layout import Layout
from kvgate.explain.policies import UNKNOWN_TOKENS
from kvgate.explain.serving import BATCHED_TOKENS, NOT_ASKED, PADDED_LESS_BELOW, PADS_LESS, Platform, Serving
from kvgate.kernel import models
from kvgate.kernel.errors import UsageError
from kvgate.kernel.structure import read_bytes
from kvgate.kernel.versions import version_of
from kvreference.attention import Kind
from kvreference.geometry import Geometry

TOKENS_MAX = 2**24
"""The longest request, window and alignment that are explained: where hits can end is tried one by one."""
AskVllm = Callable[[Path, Serving], Sequence[dict[str, Any]]]
"""What vLLM itself says of a file's groups, as a dump has them; raises ValueError if it does not."""
_OF_DRAFTS = "the layers of a draft model that is a model of its own are not counted: a dump has them"
_HASHES_AHEAD = (
    "hashes cover the token after a block, so hits need no look-ahead block, unless there is a KV connector or "
    "the speculative config has disable_lookahead_block_hashes"
)
_SCALED = "a preset of the gate: windows are scaled down; give the model's config.json for its true sizes"


def load(name: str, serving: Serving) -> Layout:
    """The layout of what ``name`` names, served with ``serving``.

    Raises:
        UsageError: it names nothing, or nothing that can be served so.
    """
    path = Path(name)
    try:
        exists = path.exists()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if not exists:
        return _preset(name, serving)
    if path.is_dir():
        return _model(config_file.read(path), serving)
    return of_document(_document(path), path, serving)


def model_of(name: str, served: Callable[[], Serving], ask: AskVllm | None = None) -> models.Model:
    """The model of the gate that ``name`` names: of a ``config.json`` or a dump, the groups and what stays cached.

    ``served`` is asked for such a file alone. The groups of a ``config.json`` are those that vLLM says if it is asked,
    and those of kvgate's own table otherwise.

    Raises:
        UsageError: it names nothing, or nothing that can be served so.
    """

    def read(path: Path) -> models.Model:
        document = None if path.is_dir() else _document(path)
        if _has_groups(document):
            return models.of_groups(path)
        serving = served()
        if serving.enable_prefix_caching is False:
            raise UsageError("--no-enable-prefix-caching: then nothing is cached, and nothing can hit; leave it out")
        layout = load(str(path), serving) if path.is_dir() else of_document(document, path, serving)
        source = f"read from {path}"
        if ask is not None and not dump.is_dump(document):
            layout, whose = _as_vllm_says(layout, path, serving, ask)
            source = f"{source}; {whose}"
        geometry = layout.geometry
        models.refuse_long(path, geometry)
        # A config.json is called as the folder of its model.
        named = path.resolve().parent.name if path.name == "config.json" else path.resolve().name.removesuffix(".json")
        return models.Model(named, geometry, source, serving.features(geometry))

    return models.load(name, read)


def _as_vllm_says(layout: Layout, path: Path, serving: Serving, ask: AskVllm) -> tuple[Layout, str]:
    """The layout with vLLM's groups, and whose they are."""
    try:
        said = dump.of({"format": FORMAT, "version": FORMAT_VERSION, "groups": ask(path, serving)}, path)
    except (ValueError, UsageError) as error:
        return layout, f"groups by kvgate's table, not by vLLM: {error}"
    theirs = said.placed()
    ours = tuple(evolve(placed, label="") for placed in layout.groups)
    if theirs == ours:
        return layout, f"groups as vLLM {serving.version} makes them"
    return evolve(layout, groups=theirs), f"groups as vLLM {serving.version} makes them: kvgate's table has others"


def _document(path: Path) -> object:
    try:
        return json.loads(read_bytes(path, config_file.FILE_BYTES_MAX))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from error


def _has_groups(document: object) -> bool:
    return isinstance(document, dict) and "groups" in document and not dump.is_dump(document)


def of_document(document: object, path: Path, serving: Serving) -> Layout:
    """The same for a document that is read already."""
    if dump.is_dump(document):
        return _dumped(dump.of(document, path), path.stem, serving)
    if _has_groups(document):
        return _geometry(models.load(str(path)), serving)
    return _model(config_file.of(document, path), serving)


def _preset(name: str, serving: Serving) -> Layout:
    if "/" in name or name.endswith(".json"):
        raise UsageError(
            f"{name}: no such file or folder, and nothing is downloaded: give the config.json of the model, a folder "
            f"with one, a dump of its KVCacheConfig, or one of {', '.join(models.MODELS)}"
        )
    return _geometry(models.load(name), serving)


def _geometry(model: models.Model, serving: Serving) -> Layout:
    if serving.block_size is not None or serving.disable_hybrid_kv_cache_manager:
        raise UsageError(
            f"--block-size and --disable-hybrid-kv-cache-manager: the groups of {model.name} are given; give the "
            "config.json of a model, of which groups are made"
        )
    ahead = model.geometry.hashed_ahead_tokens
    if ahead and not serving.described.hashes_ahead:
        raise UsageError(
            f"{model.name}: hashes of {serving.engine} cover no token after a block: leave out +hashed-ahead"
        )
    placed = tuple(Placed(group, 1) for group in model.geometry.groups)
    already = ahead or any(group.lookahead for group in model.geometry.groups)
    groups = placed if already else dump.with_drafts(placed, serving.looks_ahead)
    note = (_SCALED,) if model.name.partition("+")[0] in models.MODELS and "scaled to" in model.source else ()
    layout = _layout(model.name, model.source, Grouping(groups, 0), serving, notes=note)
    return evolve(layout, hashed_ahead_tokens=ahead) if ahead else layout


def _dumped(found: dump.Dump, name: str, serving: Serving) -> Layout:
    if serving.block_size is not None:
        raise UsageError("--block-size: a dump has its block sizes; leave it out, or give the config.json")
    flagged = any(each.lookahead for each in found.groups)
    groups = dump.with_drafts(found.placed(), serving.looks_ahead or (flagged and serving.speculation is None))
    layout = _layout(name, "a dump of its KVCacheConfig", Grouping(groups, found.block_bytes or 0), serving)
    return layout if layout.blocks else evolve(layout, blocks=found.num_blocks)


def _model(config: config_file.Config, serving: Serving) -> Layout:
    try:
        return _of_model(config, serving)
    except ValueError as error:
        # A window of one token, say: no group that there could be.
        raise UsageError(f"{config.path}: {error}") from error


def _of_model(config: config_file.Config, serving: Serving) -> Layout:
    limit = config.optional("max_position_embeddings")
    notes: tuple[str, ...] = ()
    if config.model_type == deepseek_v4.MODEL_TYPE:
        found = deepseek_v4.grouping(config, serving)
    else:
        layers = layers_of(config, serving)
        if serving.looks_ahead:
            layers, notes = _with_draft_layers(layers, config, serving)
        padded_below = PADDED_LESS_BELOW if serving.release in PADS_LESS else PADDED_BELOW
        found = grouped(layers, not serving.disable_hybrid_kv_cache_manager, padded_below)
        found = evolve(found, groups=dump.with_drafts(found.groups, serving.looks_ahead))
        notes = (*notes, *_of_the_model(serving))
    layout = _layout(config.model_type, f"read from {config.path.name}", found, serving, limit, notes)
    return evolve(layout, counts_draft_layers=_OF_DRAFTS not in notes)


def _with_draft_layers(
    layers: list[Layer], config: config_file.Config, serving: Serving
) -> tuple[list[Layer], tuple[str, ...]]:
    """The layers, and those that the model's own draft head adds: full attention like its own."""
    full = next((layer for layer in reversed(layers) if layer.kind is Kind.FULL), None)
    own = config.optional("num_nextn_predict_layers") or config.optional("mtp_num_hidden_layers")
    assert serving.speculation is not None
    if "mtp" in serving.speculation.method and full is not None:
        return [*layers, *[full] * (own or 1)], ()
    return layers, (_OF_DRAFTS,)


def _layout(
    name: str,
    source: str,
    found: Grouping,
    serving: Serving,
    limit: int | None = None,
    notes: tuple[str, ...] = (),
) -> Layout:
    has_states = any(placed.group.keeps_states for placed in found.groups)
    serves = all(placed.group.attention.serves_hits for placed in found.groups)
    block_bytes = found.block_bytes or None
    blocks = serving.num_gpu_blocks_override
    if blocks is None and serving.kv_cache_memory_bytes is not None:
        if block_bytes is None:
            raise UsageError(
                "--kv-cache-memory-bytes: how many bytes a block takes is not known here: give "
                "--num-gpu-blocks-override, as vLLM's log says it"
            )
        blocks = serving.kv_cache_memory_bytes // block_bytes
        if blocks < 2:
            raise UsageError(f"--kv-cache-memory-bytes: not enough for two blocks of {block_bytes} bytes")
    attends = any(not placed.group.keeps_states for placed in found.groups)
    caches = serving.caches(has_states, attends) and serves
    longest = serving.max_model_len or limit
    _refuse_what_is_too_long(name, found, longest)
    all_notes = (*notes, *_taken_for_granted(serving, longest))
    groups, ahead = found.groups, 0
    if caches and serving.hashes_ahead and any(placed.group.lookahead for placed in groups):
        groups, ahead = dump.with_drafts(groups, looks_ahead=False), 1
        all_notes = (*all_notes, _HASHES_AHEAD)
    return Layout(name, source, groups, caches, block_bytes, blocks, longest, all_notes, ahead)


def _refuse_what_is_too_long(name: str, found: Grouping, longest: int | None) -> None:
    try:
        geometry = Geometry(tuple(placed.group for placed in found.groups))
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error
    if longest is not None and longest > TOKENS_MAX:
        raise UsageError(f"{name}: requests of {longest} tokens, at most {TOKENS_MAX} here; give --max-model-len")
    sizes = (max(group.block_size_tokens, group.window_tokens or 0) for group in geometry.groups)
    if max(geometry.alignment_tokens, *sizes) > TOKENS_MAX:
        raise UsageError(f"{name}: a block, a window, or their common multiple has more than {TOKENS_MAX} tokens")


def _taken_for_granted(serving: Serving, longest: int | None) -> Iterator[str]:
    """Assumed values that may change the answer."""
    described = serving.described
    if version_of(described.version) != serving.release:
        yield f"{serving.version} is not described: the findings that count are those of {described.version}"
    if serving.max_num_batched_tokens is None:
        yield f"a step computes up to {BATCHED_TOKENS:,} tokens, unless --max-num-batched-tokens says otherwise"
    if longest is None:
        yield f"a request may have {UNKNOWN_TOKENS:,} tokens, unless --max-model-len says otherwise"
    if serving.speculation is not None and serving.speculation.inferred:
        yield (
            f'the speculative config has no "method": taken for {serving.speculation.method}, by the name of its '
            "model; give the method"
        )


def _of_the_model(serving: Serving) -> Iterator[str]:
    """The same where blocks are made of the model's sizes."""
    if serving.platform is Platform.GPU and serving.release in NOT_ASKED:
        yield (
            f"the groups, and whether prefix caching is on by default, are those of vLLM {NOT_ASKED.end}: "
            f"{serving.version} was not asked"
        )
    if serving.kv_cache_dtype is None:
        size = serving.dtype_bytes
        yield f"an element of the cache has {size} bytes (bfloat16), unless --kv-cache-dtype says otherwise"
    if serving.tensor_parallel_size is None:
        yield "one worker, unless --tensor-parallel-size says otherwise"
