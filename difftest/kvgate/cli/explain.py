"""``kvgate explain``: why is my hit rate zero, from the model and the serving flags alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import attrs
import typer

from kvgate.cli.cpu_tier import CpuTier, blocks_of
from kvgate.cli.options import TableOutput
from kvgate.kernel.errors import UsageError
from kvgate.kernel.output import TableFormat

if TYPE_CHECKING:
    from kvgate.explain.best_hit import Prompts
    from kvgate.explain.serving import Serving


Model: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="The config.json of a model or a folder with it, a dump of vLLM's KVCacheConfig, or a preset of the "
        "gate (dsv4-flash-ascend-32+mtp).",
    ),
]
Platform: TypeAlias = Annotated[str, typer.Option("--platform", metavar="gpu|ascend", help="Whose groups.")]
Version: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--vllm-version",
        metavar="V",
        help="Of vLLM, or of vLLM-Ascend with --platform ascend. Default: what is installed.",
    ),
]
BlockSize: TypeAlias = Annotated[int | None, typer.Option("--block-size", metavar="N", min=1, help="As vLLM's.")]
SpeculativeConfig: TypeAlias = Annotated[
    str | None,
    typer.Option("--speculative-config", metavar="JSON", help="As vLLM's: its method and num_speculative_tokens."),
]
Mtp: TypeAlias = Annotated[
    int | None, typer.Option("--mtp", metavar="N", min=1, help='Short for {"method": "mtp"} with N drafts.')
]
Retention: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--prefix-cache-retention-interval",
        metavar="N|auto|none",
        help="As vLLM's, or as its variable VLLM_PREFIX_CACHE_RETENTION_INTERVAL; none has every block cached.",
    ),
]
NumGpuBlocks: TypeAlias = Annotated[
    int | None,
    typer.Option("--num-gpu-blocks-override", metavar="N", min=2, help="How many blocks; vLLM's log says it."),
]
KvCacheMemoryBytes: TypeAlias = Annotated[
    int | None, typer.Option("--kv-cache-memory-bytes", metavar="N", min=1, help="As vLLM's, for each worker.")
]
MaxModelLen: TypeAlias = Annotated[int | None, typer.Option("--max-model-len", metavar="N", min=2, help="As vLLM's.")]
MaxNumBatchedTokens: TypeAlias = Annotated[
    int | None, typer.Option("--max-num-batched-tokens", metavar="N", min=1, help="As vLLM's; 8192 unless given.")
]
MaxNumSeqs: TypeAlias = Annotated[int, typer.Option("--max-num-seqs", metavar="N", min=1, help="As vLLM's.")]
LongPrefill: TypeAlias = Annotated[
    int, typer.Option("--long-prefill-token-threshold", metavar="N", min=0, help="As vLLM's.")
]
Caching: TypeAlias = Annotated[
    bool | None,
    typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", help="As vLLM's, with its default."),
]
MambaMode: TypeAlias = Annotated[
    str | None,
    typer.Option("--mamba-cache-mode", metavar="none|all|align", help="As vLLM's, with its default for the model."),
]
NoHybrid: TypeAlias = Annotated[
    bool, typer.Option("--disable-hybrid-kv-cache-manager", help="As vLLM's: windows are kept in full.")
]
TensorParallelSize: TypeAlias = Annotated[
    int | None, typer.Option("--tensor-parallel-size", "-tp", metavar="N", min=1, help="As vLLM's; 1 unless given.")
]
KvCacheDtype: TypeAlias = Annotated[str | None, typer.Option("--kv-cache-dtype", metavar="TYPE", help="As vLLM's.")]
PromptTokens: TypeAlias = Annotated[
    int | None,
    typer.Option("--prompt-tokens", metavar="N", min=1, help="How long prompts are: shows which cause is yours."),
]
SharedTokens: TypeAlias = Annotated[
    int | None,
    typer.Option("--shared-tokens", metavar="N", min=1, help="How many leading tokens they share; else all."),
]
Plot: TypeAlias = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.svg|png", help="Draw how much of a prompt can hit.")
]
Snippet: TypeAlias = Annotated[
    bool, typer.Option("--dump-snippet", help="Print the lines that write a dump of a KVCacheConfig.")
]


def explain(
    model: Model = None,
    platform: Platform = "gpu",
    version: Version = None,
    block_size: BlockSize = None,
    speculative_config: SpeculativeConfig = None,
    mtp: Mtp = None,
    retention: Retention = None,
    num_gpu_blocks_override: NumGpuBlocks = None,
    kv_cache_memory_bytes: KvCacheMemoryBytes = None,
    max_model_len: MaxModelLen = None,
    max_num_batched_tokens: MaxNumBatchedTokens = None,
    max_num_seqs: MaxNumSeqs = 256,
    long_prefill_token_threshold: LongPrefill = 0,
    enable_prefix_caching: Caching = None,
    mamba_cache_mode: MambaMode = None,
    disable_hybrid_kv_cache_manager: NoHybrid = False,
    tensor_parallel_size: TensorParallelSize = None,
    kv_cache_dtype: KvCacheDtype = None,
    prompt_tokens: PromptTokens = None,
    shared_tokens: SharedTokens = None,
    cpu_tier: CpuTier = None,
    plot: Plot = None,
    snippet: Snippet = False,
    output: TableOutput = TableFormat.TEXT,
) -> None:
    """Say why a prefix cache hits nothing, and what its sizes allow, before anything is started.

    Prints the groups of the model, where hits can end, the shortest prompt that can hit, and what draft layers cost.
    Also how many prompts the pool retains under each policy, and every setting that is known to fail, with its
    guarantee and its thread. Nothing is downloaded, and vLLM is not imported.

    Exit 0 if something can hit, 1 if the hit rate is zero for all prompts, or for the given ones.

    Examples:

      kvgate explain DeepSeek-V4-Flash/config.json --platform ascend --block-size 128 --mtp 1

      kvgate explain config.json --vllm-version 0.29.0 --prompt-tokens 4100 --shared-tokens 4090

      kvgate explain gemma-4-31B-it/ --num-gpu-blocks-override 12000 --max-model-len 131072 --plot hits.svg

      kvgate explain gpt-oss-20b/config.json --num-gpu-blocks-override 12000 --cpu-tier 64GiB

      kvgate explain --dump-snippet; kvgate explain kv-cache-config.json --format json
    """
    flags = {**locals(), "version": version_of(version, platform == "ascend")}
    if snippet:
        from kvgate.explain.dump import SNIPPET

        typer.echo(SNIPPET, nl=False)
        return
    if model is None:
        raise UsageError("nothing to explain: give a config.json, a dump, or a preset; kvgate explain --help")
    prompts = prompts_of(prompt_tokens, shared_tokens)
    raise typer.Exit(_explained(model, serving_of(flags), prompts, cpu_tier, plot, output))


def version_of(version: str | None, ascend: bool = False) -> str:
    """The version that is given, or else the installed one.

    Raises:
        UsageError: the installed one is not known, and none is given.
    """
    from kvgate.adapters.releases import release_described, version_by_default

    if version is not None:
        return version
    found = version_by_default(ascend)
    try:
        release_described(found, ascend)
    except UsageError as error:
        raise UsageError(f"the installed {error}; give one of them with --vllm-version") from error
    return found


def serving_of(flags: Mapping[str, Any]) -> Serving:
    """What is served, from the command's own parameters: they are called as ``Serving`` calls them.

    Raises:
        UsageError: the platform, version or speculation is unknown.
    """
    from kvgate.explain.serving import Serving, speculation_of

    names = {field.name for field in attrs.fields(Serving)} & set(flags)
    speculation = speculation_of(flags["speculative_config"], flags["mtp"])
    try:
        return Serving(speculation=speculation, **{name: flags[name] for name in names})
    except ValueError as error:
        raise UsageError(f"--platform: {error}; it is gpu or ascend") from error


def prompts_of(prompt_tokens: int | None, shared_tokens: int | None) -> Prompts | None:
    """The given prompts: all of one length, with a shared prefix of the given length.

    Raises:
        UsageError: they share more than they are long, or only the shared part is given.
    """
    from kvgate.explain.best_hit import Prompts

    if prompt_tokens is None:
        if shared_tokens is not None:
            raise UsageError("--shared-tokens: say how long the prompts are too, with --prompt-tokens")
        return None
    if shared_tokens is not None and shared_tokens > prompt_tokens:
        raise UsageError(f"--shared-tokens {shared_tokens}: more than the prompts' {prompt_tokens} tokens")
    return Prompts(prompt_tokens, prompt_tokens, prompt_tokens if shared_tokens is None else shared_tokens)


def _explained(
    name: str, serving: Serving, prompts: Prompts | None, cpu_tier: str | None, plot: Path | None, output: TableFormat
) -> int:
    from kvgate.explain.explanation import case_of
    from kvgate.explain.explanation import explain as explained
    from kvgate.explain.load import load
    from kvgate.report.explanation import report_of
    from kvgate.report.formats import echo

    case = case_of(lambda served: load(name, served), serving, prompts)
    explanation = explained(case, blocks_of(cpu_tier, case.layout.block_bytes))
    if plot is not None:
        from kvgate.explain.plot import draw

        draw(explanation, plot)
    report = report_of(explanation)
    echo(report, output)
    return report.exit_code
