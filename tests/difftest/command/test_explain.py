"""``kvgate explain``.

Goal: the answer comes at once, a wrong input gets a message that says what to do, and the exit code says whether the
rate is zero. Method: the command in this process on presets, configurations and dumps, sound and broken.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvgate.adapters import releases
from kvgate.explain import rules as explain_rules
from kvgate.explain.dump import SNIPPET
from kvgate.report.document import from_json

from .stage import Ended, environment, rows_of

Kvgate = Callable[..., Ended]

REPORTS = Path(__file__).parents[1] / "explain" / "reports"
CONFIGS = REPORTS.parent / "configs"
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
}
DUMP: dict[str, Any] = {
    "format": "kvgate-kv-cache-config",
    "version": 1,
    "num_blocks": 100,
    "groups": [{"kind": "full", "block_size_tokens": 16}],
}


def written(path: Path, document: object) -> str:
    """A file with ``document``."""
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return str(path)


def figures_in(out: str) -> dict[str, Any]:
    """Every figure of a report in JSON."""
    return {row["figure"]: row["value"] for row in rows_of(out, "figures")}


def test_a_preset_is_explained(kvgate: Kvgate) -> None:
    """The verdict first, then the causes, the groups, the figures and the plot."""
    ended = kvgate("explain", "dsv4-flash-ascend-128+mtp", "--platform", "ascend", "--num-gpu-blocks-override", "4340")
    assert (0, "") == (ended.code, ended.err)
    lines = ended.out.splitlines()
    started = "dsv4-flash-ascend-128+mtp on vLLM-Ascend 0.20.2rc1: The hit rate can be zero, for some prompts: "
    assert lines[0].startswith(f"{started}coarse-alignment")
    assert "  seen in: vllm-ascend#10710, vllm-ascend#16270, vllm-ascend#12589" in lines
    assert any(line.startswith("  KV-OP-01: The hit length is the largest multiple") for line in lines)
    assert "Hits end at multiples of 16,384 tokens: lcm(512, 16384, 128, 8, 32) = 16384, decided by group 1." in lines
    assert "The draft layers cost 128 tokens: without them it would have 16,385." in lines
    assert any("└────" in line for line in lines)


@pytest.mark.ci
def test_the_prompts_tell_which_cause_it_is(kvgate: Kvgate) -> None:
    """Exit 1 where nothing of them can hit, and 0 where something can."""
    arguments = ("explain", "dsv4-flash-ascend-128", "--platform", "ascend")
    ended = kvgate(*arguments, "--prompt-tokens", "8192")
    assert 1 == ended.code
    assert "Nothing can hit of a prompt of 8,192 tokens that shares 8,192" in ended.out
    ended = kvgate(*arguments, "--prompt-tokens", "40000", "--shared-tokens", "20000")
    assert 0 == ended.code
    assert "Up to 16,384 tokens can hit of a prompt of 40,000 tokens that shares 20,000." in ended.out


def test_what_is_always_zero_is_exit_code_1(kvgate: Kvgate, tmp_path: Path) -> None:
    """As with caching that is off."""
    path = written(tmp_path / "config.json", LLAMA)
    assert 0 == kvgate("explain", path).code
    ended = kvgate("explain", path, "--no-enable-prefix-caching")
    assert 1 == ended.code
    assert "The hit rate is zero: caching-is-off." in ended.out


def test_json_is_versioned(kvgate: Kvgate, tmp_path: Path) -> None:
    """With all figures and causes."""
    report = json.loads((REPORTS / "06-dsv4-ascend-128.json").read_text(encoding="utf-8"))
    path = written(tmp_path / "config.json", report["model"])
    flags = ("--platform", "ascend", "--block-size", "128", "--speculative-config", json.dumps({"method": "mtp"}))
    out = kvgate("explain", path, *flags, "--format", "json").out
    figures = figures_in(out)
    assert 16384 == figures["alignment_tokens"]
    assert (16513, 16385) == (figures["shortest_prompt"], figures["shortest_prompt_without_drafts"])
    first = from_json(out, "out").found[0]
    assert "coarse-alignment" == first.details["id"]
    assert first.sentence.startswith("The hit length is")
    assert ["in effect", "dense", "masked", "retention 0", "retention 32768", "pinned"] == [
        policy["name"] for policy in figures["policies"]
    ]


def test_assumptions_are_reported(kvgate: Kvgate, tmp_path: Path) -> None:
    """A note for each value that was assumed, and none for one that was given."""

    def notes(*flags: str, model: str) -> list[str]:
        found: list[str] = figures_in(kvgate("explain", model, "--format", "json", *flags).out)["notes"]
        return found

    config, dump = (
        written(tmp_path / f"{name}.json", document) for name, document in (("config", LLAMA), ("dump", DUMP))
    )
    words = ["--kv-cache-dtype", "--tensor-parallel-size", "--max-num-batched-tokens"]
    untold = notes(model=config)
    assert [True] * 3 == [word in note for word, note in zip(words, untold, strict=True)]
    said = ("--max-num-batched-tokens", "8192", "-tp", "1", "--kv-cache-dtype", "auto")
    assert [] == notes(*said, model=config)
    assert any("131,072 tokens, unless --max-model-len" in note for note in notes(model=dump))
    assert [] == notes("--max-num-batched-tokens", "8192", "--max-model-len", "4096", model=dump)


@pytest.mark.parametrize(
    ("name", "size", "blocks", "prompts"),
    [
        # A block of LLAMA: 4 layers of 16 tokens, with keys and values of 4 heads of 64 elements of 2 bytes: 64 KiB.
        (LLAMA, "64GiB", 1_048_576, 4096),
        (LLAMA, "20MiB", 320, 1),
        (LLAMA, "300blocks", 300, 1),
        # A dump does not say how many bytes a block has.
        (DUMP, "300blocks", 300, 1),
    ],
)
def test_a_tier_of_a_size_keeps_prompts(
    kvgate: Kvgate, tmp_path: Path, name: dict[str, Any], size: str, blocks: int, prompts: int
) -> None:
    """Prompts of 4,096 tokens take 256 blocks each."""
    config = written(tmp_path / "config.json", name)
    pool = ("--num-gpu-blocks-override", "1000") if name is LLAMA else ()
    ended = kvgate("explain", config, "--cpu-tier", size, "--prompt-tokens", "4096", *pool)
    sentence = f"tier on the host of {blocks:,} blocks keeps {prompts:,} of such requests, of 256 full blocks each"
    assert sentence in " ".join(ended.out.split())


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("64GB", "not a size; write, for example, 64GiB or 8000blocks"),
        ("64GiB", "how many bytes a block has is not known here: give a number of blocks"),
        ("0blocks", "0 blocks; there are 1 to"),
    ],
)
def test_a_tier_of_no_size_is_bad_usage(kvgate: Kvgate, tmp_path: Path, size: str, message: str) -> None:
    ended = kvgate("explain", written(tmp_path / "dump.json", DUMP), "--cpu-tier", size)
    assert 2 == ended.code
    assert message in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("model", "method", "ahead"),
    [("meta/llama-68m", "draft_model", 0), ("yuhuili/EAGLE-LLaMA3", "eagle", 16), ("z-lab/Qwen3-DFlash", "dflash", 16)],
)
def test_a_method_that_is_not_said_is_vllms(kvgate: Kvgate, model: str, method: str, ahead: int) -> None:
    """From the model's name, or for a model that drafts by itself and does not look ahead; the output says so."""
    config = json.dumps({"model": model, "num_speculative_tokens": 3})
    figures = figures_in(kvgate("explain", "full", "--speculative-config", config, "--format", "json").out)
    assert ahead == figures["lookahead_tokens"]
    assert any(f"taken for {method}" in note and "give the method" in note for note in figures["notes"])


@pytest.mark.parametrize("version", ["0.20.2", "v0.20.2rc1", "0.20.2.post1", "0.20.2.dev3+g1a2b", "0.20"])
def test_versions_with_tails_are_taken(kvgate: Kvgate, version: str) -> None:
    """As packages have them."""
    assert 0 == kvgate("explain", "full", "--vllm-version", version).code


@pytest.mark.parametrize("platform", ["gpu", "ascend"])
@pytest.mark.parametrize("version", ["0.8.0", "0.11", "0.34.0", "99.0"])
def test_a_version_that_is_not_known_is_rejected(kvgate: Kvgate, version: str, platform: str) -> None:
    """Older or newer than all described ones; the message names these."""
    ended = kvgate("explain", "full", "--vllm-version", version, "--platform", platform)
    assert (2, "") == (ended.code, ended.out)
    assert f" {version} is not known: what is known are " in ended.err
    assert ("0.20.2rc1, 0.23.0, 0.30.0rc2" if platform == "ascend" else "0.30.0, 0.33.0") in ended.err


def test_the_installed_version_is_the_default(kvgate: Kvgate, monkeypatch: pytest.MonkeyPatch) -> None:
    """If none is installed, it is the gate's version. An unknown version is rejected unless another is given."""
    for found, explained in (("0.23.0", "0.23.0"), (None, "0.20.2")):
        monkeypatch.setattr(releases, "installed", lambda *_names, found=found: found)
        assert f"full on vLLM {explained}: " in kvgate("explain", "full").out
    monkeypatch.setattr(releases, "installed", lambda *_names: "0.40.0")
    ended = kvgate("explain", "full")
    assert 2 == ended.code
    assert "the installed vLLM 0.40.0 is not known" in ended.err
    assert "give one of them with --vllm-version" in ended.err
    assert 0 == kvgate("explain", "full", "--vllm-version", "0.20.2").code


def test_a_version_between_two_takes_the_findings_of_the_one_before(kvgate: Kvgate) -> None:
    """And says so."""
    assert (
        "0.29.0 is not described: the findings that count are those of 0.27.1"
        in kvgate("explain", "full", "--vllm-version", "0.29.0").out
    )
    assert "is not described" not in kvgate("explain", "full", "--vllm-version", "0.27.1").out


@pytest.mark.parametrize("version", ["0.27.1", "0.28.0", "0.29.0", "0.30.0"])
def test_a_version_that_was_not_asked_for_its_groups_takes_those_of_the_next(kvgate: Kvgate, version: str) -> None:
    """And says so; of a model whose groups 0.30.0 makes otherwise than 0.27.1."""
    shown = kvgate("explain", str(CONFIGS / "falcon-h1" / "config.json"), "--vllm-version", version).out
    assert (version in ("0.28.0", "0.29.0")) == (f"those of vLLM 0.30.0: {version} was not asked" in shown)
    assert (version == "0.27.1") == ("1,568" not in shown)


@pytest.mark.ci
@pytest.mark.parametrize("version", ["0.20.2", "0.23.0", "0.33.0"])
def test_a_finding_of_the_release_is_applied(kvgate: Kvgate, version: str) -> None:
    """Finding 006: of 65 tokens nothing hits, and 32 tokens on a release that has not got it.

    0.33.0 has it if its hashes do not cover the token after a block.
    """
    config = str(REPORTS.parent / "configs" / "gemma4" / "config.json")
    drafts = {"method": "eagle3", "num_speculative_tokens": 3, "disable_lookahead_block_hashes": True}
    arguments = (
        "explain",
        config,
        "--prompt-tokens",
        "65",
        "--speculative-config",
        json.dumps(drafts),
        "--vllm-version",
    )
    ended = kvgate(*arguments, version)
    assert 1 == ended.code
    assert f"on vLLM {version}: The hit rate is zero: aligned-before-the-drop." in ended.out
    assert "seen in: finding 006" in ended.out
    assert "hits 0 tokens of a prompt of 65 that shares 65, and 32 without this finding" in " ".join(ended.out.split())
    assert "Up to 32 tokens can hit" in kvgate(*arguments, "0.19.1").out


def test_a_cache_that_is_off_has_no_shortest_prompt(kvgate: Kvgate) -> None:
    """Qwen3-Next by default before 0.28; a block of 144 tokens and one more suffice where its states are cached."""
    config = str(REPORTS.parent / "configs" / "qwen3-next" / "config.json")
    off = kvgate("explain", config, "--vllm-version", "0.20.2")
    assert 1 == off.code
    assert "Nothing can hit: prefix caching is off." in off.out
    assert "The shortest prompt" not in off.out
    assert (
        "The shortest prompt that can hit when it is sent again has 145 tokens."
        in kvgate("explain", config, "--vllm-version", "0.30.0").out
    )


@pytest.mark.ci
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_curve_is_drawn(kvgate: Kvgate, tmp_path: Path, suffix: str) -> None:
    """With a title and axes that say what they are; the same figures make the same picture."""
    path = tmp_path / f"hits.{suffix}"
    assert 0 == kvgate("explain", "mixed-blocks", "--plot", str(path)).code
    drawn = path.read_bytes()
    assert 0 == kvgate("explain", "mixed-blocks", "--plot", str(path)).code
    assert drawn == path.read_bytes()
    if suffix == "svg":
        text = drawn.decode()
        assert "mixed-blocks: hits end at multiples of 32 tokens" in text
        assert "length of a prompt that is sent again (tokens)" in text
    else:
        assert drawn.startswith(b"\x89PNG")


def test_a_dump_has_its_pool(kvgate: Kvgate, tmp_path: Path) -> None:
    """A request that is too long for the pool waits permanently."""
    ended = kvgate("explain", written(tmp_path / "dump.json", DUMP), "--max-model-len", "4096")
    assert 0 == ended.code
    assert "A request of more than 1,584 tokens never fits the pool of 100 blocks." in ended.out
    assert "never-fits: known to fail" in ended.out
    ended = kvgate("explain", written(tmp_path / "dump.json", DUMP), "--max-model-len", "1584")
    assert "Any request of up to 1,584 tokens fits the pool of 100 blocks." in ended.out


def test_the_snippet_is_python(kvgate: Kvgate) -> None:
    """It is printed unchanged, and runs where vLLM is installed."""
    assert SNIPPET == kvgate("explain", "--dump-snippet").out
    compile(SNIPPET, "snippet", "exec")
    assert "kvgate.adapters.kv_cache_dump import write" in SNIPPET


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to explain"),
        (("no-such-model",), "unknown model 'no-such-model'"),
        (("models/no-such/config.json",), "no such file or folder, and nothing is downloaded"),
        (("full", "--platform", "tpu"), "it is gpu or ascend"),
        (("full", "--vllm-version", "newest"), "'newest' is not a version: give one like 0.20.2"),
        (("full", "--block-size", "32"), "the groups of full are given"),
        (("full", "--mtp", "1", "--speculative-config", "{}"), "give one of them"),
        (("full", "--speculative-config", "{"), "--speculative-config is not valid JSON"),
        (("full", "--speculative-config", "[]"), "must be an object"),
        (("full", "--speculative-config", '{"method": 1}'), 'needs a "method"'),
        (("full", "--vllm-version", "0.20.2banana"), "'0.20.2banana' is not a version"),
        (("full", "--kv-cache-dtype", "banana"), "it is one of float16, bfloat16, auto, fp8"),
        (("full", "--max-model-len", "4096", "--prompt-tokens", "4097"), "a request may have 4096 tokens here"),
        (("full", "--prompt-tokens", "131073"), "a request may have 131072 tokens here"),
        (
            ("mamba-align", "--mtp", "9", "--enable-prefix-caching"),
            "--mtp or --speculative-config: 9 drafts need as many draft states",
        ),
        (("full", "--shared-tokens", "9"), "say how long the prompts are too"),
        (("full", "--prompt-tokens", "9", "--shared-tokens", "10"), "more than the prompts' 9 tokens"),
        (("gpt-oss-hybrid", "--prefix-cache-retention-interval", "often"), "a number of tokens or auto"),
        (("full", "--kv-cache-memory-bytes", "1000000"), "how many bytes a block takes is not known"),
        (("full", "--plot", "hits.pdf"), "must end with .svg or .png"),
        (("mamba-none", "--plot", "hits.svg"), "there is nothing to draw"),
    ],
)
def test_bad_usage_is_exit_code_2(kvgate: Kvgate, arguments: tuple[str, ...], message: str) -> None:
    """With what was wrong, and what to do."""
    ended = kvgate("explain", *arguments)
    assert (2, "") == (ended.code, ended.out)
    assert message in ended.err


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "a config.json is an object"),
        ({}, 'has no "model_type"'),
        ({"model_type": "brand-new"}, "the architecture 'brand-new' is not known here"),
        ({**LLAMA, "num_hidden_layers": 0}, "num_hidden_layers must be 1 to 1000"),
        ({**LLAMA, "num_key_value_heads": "4"}, "num_key_value_heads must be a number"),
        ({key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}, "llama needs num_hidden_layers"),
        ({**LLAMA, "use_sliding_window": True}, "which layers slide then is not known here"),
        (
            {**LLAMA, "model_type": "gemma3_text", "sliding_window": 9, "layer_types": ["full_attention"]},
            "names 1 layers",
        ),
        ({**DUMP, "version": 2}, "a dump of version 2, and this kvgate reads 1"),
        ({**DUMP, "groups": []}, "a dump has 1 to 256 groups, got 0"),
        ({**DUMP, "groups": [{"kind": "round", "block_size_tokens": 16}]}, "round"),
        ({**DUMP, "groups": [{"kind": "full", "block_size_tokens": 16, "colour": 1}]}, "colour"),
        ({**DUMP, "groups": [{"kind": "sliding_window", "block_size_tokens": 16}]}, "needs window_tokens"),
        ({**DUMP, "num_blocks": 1}, "num_blocks"),
        ({**DUMP, "groups": [{"kind": "full", "block_size_tokens": -16}]}, "block_size_tokens"),
    ],
)
def test_a_broken_document_is_exit_code_2(kvgate: Kvgate, tmp_path: Path, document: object, message: str) -> None:
    """With the file, and what is wrong in it."""
    ended = kvgate("explain", written(tmp_path / "given.json", document))
    assert (2, "") == (ended.code, ended.out)
    assert message in ended.err
    assert "given.json" in ended.err


def test_an_unknown_architecture_gets_a_remedy(kvgate: Kvgate, tmp_path: Path) -> None:
    """A dump, and how it is written; nothing is guessed."""
    ended = kvgate("explain", written(tmp_path / "config.json", {"model_type": "brand-new"}))
    assert "kvgate explain --dump-snippet prints how" in ended.err
    assert "Known are afmoe, arcee, bamba" in ended.err


def test_a_file_that_is_too_long_is_not_read(kvgate: Kvgate, tmp_path: Path) -> None:
    """Its content does not matter."""
    path = tmp_path / "config.json"
    path.write_bytes(b" " * 5_000_001)
    assert "larger than 5000000 bytes" in kvgate("explain", str(path)).err


def test_nothing_heavy_is_imported() -> None:
    """Neither vLLM nor torch, nor matplotlib if nothing is drawn: the answer is there at once."""
    code = (
        "import sys; from kvgate.cli.app import main; sys.argv = ['kvgate', 'explain', 'gpt-oss-hybrid']\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code, ended.code\n"
        "heavy = {'vllm', 'torch', 'matplotlib', 'z3', 'hypothesis'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120)
    assert 0 == ran.returncode, ran.stderr


def test_what_is_advised_can_be_typed(kvgate: Kvgate) -> None:
    """Goal: no rule names a flag that the command refuses. Method: every flag in the rules' own words."""
    rules = Path(inspect.getfile(explain_rules)).parent
    advised = {flag for path in rules.glob("*.py") for flag in re.findall(r"--[a-z][a-z-]+", path.read_text())}
    assert "--mamba-cache-mode" in advised
    offered = kvgate("explain", "--help").out
    assert set() == {flag for flag in advised if not re.search(rf"{flag}(?![a-z-])", offered)}


@pytest.mark.parametrize(
    ("mode", "code", "message"),
    [
        ("align", 0, "mamba"),
        ("all", 2, "this vLLM cannot keep all states of this model"),
        ("some", 2, "it is one of none, all, align"),
    ],
)
def test_which_states_are_kept(kvgate: Kvgate, mode: str, code: int, message: str) -> None:
    """Goal: the flag is taken as far as the model has it. Method: Qwen3-Next, which keeps them at chunk ends."""
    model = str(CONFIGS / "qwen3-next-cached" / "config.json")
    ended = kvgate("explain", model, "--vllm-version", "0.33.0", "--mamba-cache-mode", mode)
    assert code == ended.code
    assert message in ended.out + ended.err
