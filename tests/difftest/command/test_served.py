"""A ``config.json`` as a model of every command, with the flags of ``vllm serve`` after ``--``.

Goal: check, simulate and prove take what explain takes, and see the same groups; anything else ends in one message.
Method: the configurations that vLLM's own grouping is compared with, by the command itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvgate.cli.app import app
from kvgate.cli.served import asking, models_of, models_on, sources_of
from kvgate.explain.serving import Serving
from kvgate.kernel.errors import UsageError
from kvgate.kernel.variants import Features
from kvgate.report.document import from_json
from kvgate.report.simulations import results_of
from kvreference.settings import Settings

CONFIGS = Path(__file__).parents[1] / "explain" / "configs"
GPT_OSS = str(CONFIGS / "gpt-oss" / "config.json")


@pytest.mark.parametrize(
    ("name", "flags", "version", "groups"),
    [
        ("gpt-oss", [], "0.20.2", [("sliding_window", 16, 128, False), ("full", 16, None, False)]),
        (
            "gpt-oss/config.json",
            ["--block-size", "32"],
            "0.33.0",
            [("sliding_window", 32, 128, False), ("full", 32, None, False)],
        ),
        ("gpt-oss", ["--mtp", "1"], "0.20.2", [("sliding_window", 16, 128, True), ("full", 16, None, True)]),
        ("llama4", [], "0.20.2", [*[("chunked_local", 16, 8192, False)] * 3, ("full", 16, None, False)]),
        (
            "qwen3-next",
            ["--enable-prefix-caching"],
            "0.33.0",
            [*[("mamba", 144, None, False)] * 3, ("full", 144, None, False)],
        ),
    ],
)
def test_the_groups_are_those_of_the_model(
    name: str, flags: list[str], version: str, groups: list[tuple[object, ...]]
) -> None:
    """With its true windows and blocks, and the draft layers that are asked for."""
    ((model,), _) = models_of((str(CONFIGS / name),), flags, version)
    found = [
        (each.kind.value, each.block_size_tokens, each.window_tokens, each.lookahead) for each in model.geometry.groups
    ]
    assert groups == found
    assert name.partition("/")[0] == model.name


def test_what_stays_cached_is_the_release_s(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own interval, in tokens, unless another is given; suffixes come on top."""
    kept = Features(retention_interval_tokens=0, scratch_first=True, keeps_junctions=True)
    assert [Features()] == [model.features for model in models_on("stock", (GPT_OSS,), ())]
    assert [kept] == [model.features for model in models_on("native@0.33.0", (GPT_OSS,), ())]
    flags = ["--prefix-cache-retention-interval", "1024", "--max-num-seqs", "7"]
    assert [kept] == [model.features for model in models_on("native", (GPT_OSS,), ())], "the newest release"
    (model,) = models_on("native@0.33.0", (f"{GPT_OSS}+transfers",), flags)
    assert (1024, True) == (model.features.retention_interval_tokens, model.features.transfers)
    assert "without effect here: --max-num-seqs\n" == capsys.readouterr().err


WINDOW: dict[str, Any] = {"kind": "sliding_window", "block_size_tokens": 16, "layers": 4, "window_tokens": 128}
FULL: dict[str, Any] = {"kind": "full", "block_size_tokens": 16, "layers": 4}


@pytest.mark.parametrize(
    ("said", "source", "window"),
    [
        ([WINDOW, FULL], "groups as vLLM 0.20.2 makes them", 128),
        ([{**WINDOW, "window_tokens": 64}, FULL], "groups as vLLM 0.20.2 makes them: kvgate's table has others", 64),
        (ValueError("no such model"), "groups by kvgate's table, not by vLLM: no such model", 128),
        ([], "groups by kvgate's table, not by vLLM: ", 128),
        ([{**FULL, "kind": "unheard-of"}], "groups by kvgate's table, not by vLLM: ", 128),
    ],
)
def test_vllm_is_asked_for_the_groups(said: Any, source: str, window: int) -> None:
    """The report takes vLLM's answer and says so; an unreadable answer is ignored."""

    def ask(_path: Path, _serving: Serving) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    ((model,), _) = models_of((GPT_OSS,), (), "0.20.2", ask=ask)
    assert model.source.startswith(f"read from {GPT_OSS}; {source}")
    assert window == model.geometry.groups[0].window_tokens


@pytest.mark.parametrize(
    ("sut", "is_changed", "model", "flags", "reason"),
    [
        ("stock", False, GPT_OSS, ["--mtp", "1"], "draft layers, or several workers, cannot be asked here"),
        ("stock", False, GPT_OSS, ["--tensor-parallel-size", "2"], "draft layers, or several workers"),
        ("stock", True, GPT_OSS, [], "the files that change it are not asked"),
        ("native@0.33.0", False, GPT_OSS, [], "the installed one is not under test"),
        ("reference", False, GPT_OSS, [], "the installed one is not under test"),
    ],
)
def test_vllm_is_not_asked_where_it_would_not_be_its_own_word(
    sut: str, is_changed: bool, model: str, flags: list[str], reason: str
) -> None:
    """The table says, and the report says so and why, with the flags; of a preset it says nothing."""
    models = models_on(sut, (model, "swa"), flags, asking(sut, is_changed))
    (source,) = sources_of(models, flags)
    assert f"; groups by kvgate's table, not by vLLM: {reason}" in source
    assert source.endswith(f"; served with {' '.join(flags)}") or not flags


@pytest.mark.ci
def test_the_installed_vllm_says_its_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, so that the current folder does not matter; a model that vLLM does not know does not end
    the command.
    """
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise SystemExit('the wrong vllm')")
    monkeypatch.chdir(tmp_path)
    (model,) = models_on("stock", (GPT_OSS,), ["--block-size", "32"], asking("stock", False))
    assert f"read from {GPT_OSS}; groups as vLLM 0.20.2 makes them" == model.source
    assert {32} == {group.block_size_tokens for group in model.geometry.groups}
    config = json.loads(Path(GPT_OSS).read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["NoSuchModel"]}))
    (model,) = models_on("stock", (str(tmp_path),), (), asking("stock", False))
    assert "; groups by kvgate's table, not by vLLM: " in model.source


def test_a_report_says_where_models_come_from() -> None:
    """Under what was tested, a line for each file."""
    command = [
        "check",
        "--sut",
        "reference",
        "--model",
        GPT_OSS,
        "--model",
        "swa",
        "--time-budget",
        "1s",
        "--jobs",
        "1",
    ]
    checked = CliRunner().invoke(app, [*command, "--", "--block-size", "32"])
    (line,) = [line for line in checked.stdout.splitlines() if "read from" in line]
    assert line.startswith("gpt-oss: read from ")
    assert line.endswith("; served with --block-size 32")


def test_a_suffix_takes_the_place_of_what_the_release_keeps() -> None:
    """The interval of 0.23.0 is that of masked caching."""
    ((model,), _) = models_of((f"{GPT_OSS}+retention=1024",), (), "0.23.0")
    assert 1024 == model.features.applied_to(Settings(model.geometry, blocks=9)).retention_interval_tokens


def test_a_path_with_a_plus(tmp_path: Path) -> None:
    """If the whole path exists, it is the path; else the rest are suffixes. A preset is not a folder."""
    folder = tmp_path / "swa+mtp"
    folder.mkdir()
    (folder / "config.json").write_text(Path(GPT_OSS).read_text())
    for name, is_offered in (("config.json", False), ("config.json+transfers", True)):
        ((model,), _) = models_of((str(folder / name),), (), "0.20.2")
        assert is_offered == model.features.transfers
    for name in ("", "+eagle"):
        with pytest.raises(UsageError, match="unknown model"):
            models_of((name,), (), "0.20.2")


def test_a_preset_is_what_it_was() -> None:
    """No server is asked about: the version need not be known."""
    ((model,), serving) = models_of(("gemma-hybrid+eagle",), (), "99.0")
    assert ("gemma-hybrid+eagle", None) == (model.name, serving)


def test_the_commands_take_it() -> None:
    """Reference against reference, a simulation, and proofs about its groups."""
    flags = ["--", "--block-size", "32"]
    checked = CliRunner().invoke(
        app, ["check", "--sut", "reference", "--model", GPT_OSS, "--time-budget", "2s", "--jobs", "1", *flags]
    )
    assert (0, True) == (checked.exit_code, "gpt-oss" in checked.stdout)
    workload = "prefixes:prefixes=1,prefix_tokens=656,own_tokens=1,answer_tokens=4,rounds=2"
    asked = ["simulate", workload, "--model", GPT_OSS, "--vllm-version", "0.20.2", "--format", "json", *flags]
    simulated = CliRunner().invoke(app, [*asked, "--num-gpu-blocks-override", "500"])
    assert 0 == simulated.exit_code
    (result,) = results_of(from_json(simulated.stdout, "out"), "out")
    assert (500, 2 * 640) == (result.blocks, result.hit_tokens)
    pytest.importorskip("z3")
    obligation = ["--obligation", "retention.junction-is-the-longest", "--proof-only"]
    proved = CliRunner().invoke(app, ["prove", "--model", GPT_OSS, *obligation, *flags])
    assert (0, True) == (proved.exit_code, "alignment = 32" in proved.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "swa", "--", "--mtp", "1"], "flags after -- are those that a config.json is served with"),
        (["--", "--mtp", "1"], "flags after -- are those that a config.json is served with"),
        (["gpt-oss"], "unexpected argument 'gpt-oss'"),
        (["--model", GPT_OSS, "--", "--pipeline", "3"], "after --: No such option: --pipeline"),
        (["--model", GPT_OSS, "--", "--block-size", "many"], "after --: Invalid value for '--block-size'"),
        (
            ["--model", GPT_OSS, "--", "--format", "json"],
            "after --: leave --format out: that is for kvgate explain alone",
        ),
        (["--model", GPT_OSS, "--", "--vllm-version", "0.33.0"], "leave --vllm-version out: the system under test"),
        (["--model", GPT_OSS, "--", "--no-enable-prefix-caching"], "then nothing is cached"),
        (
            ["--model", GPT_OSS, "--", "--prefix-cache-retention-interval", "1000"],
            "a multiple of the model's alignment",
        ),
        (["--model", GPT_OSS, "--model", GPT_OSS], "2 models are called 'gpt-oss'"),
        (["--model", f"{GPT_OSS}+nothing"], "no suffix 'nothing'"),
    ],
)
def test_what_cannot_be_taken(arguments: list[str], message: str) -> None:
    """One message, before a system is loaded."""
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(app, ["check", *arguments], catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"model_type": "unheard_of"}, "the architecture 'unheard_of' is not known here"),
        ({"model_type": "gpt_oss"}, "gpt_oss needs num_attention_heads"),
        ({"hidden_size": 8}, 'has no "model_type"'),
        ([], "a config.json is an object"),
    ],
)
def test_a_config_that_says_too_little(document: object, message: str, tmp_path: Path) -> None:
    """It is named, with what is missing."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    for name in (str(path), str(tmp_path)):
        with pytest.raises(UsageError, match=message):
            models_of((name,), (), "0.20.2")
