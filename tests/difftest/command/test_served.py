"""A ``config.json`` as a model of every command, with the flags of ``vllm serve`` after ``--``.

Goal: check, simulate and prove take what explain takes, and see the same groups; what cannot be taken is one message.
Method: the configurations that vLLM's own grouping is compared with, by the command itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvgate.cli.app import app
from kvgate.cli.served import models_of, models_on
from kvgate.explain.load import load
from kvgate.explain.serving import Serving, Speculation
from kvgate.kernel.errors import UsageError
from kvgate.kernel.variants import Features
from kvgate.report.document import from_json
from kvgate.report.simulations import results_of

CONFIGS = Path(__file__).parents[1] / "explain" / "configs"
GPT_OSS = str(CONFIGS / "gpt-oss" / "config.json")


@pytest.mark.parametrize("name", ["gpt-oss", "gemma3-padded", "qwen3-next", "gpt-oss/config.json"])
@pytest.mark.parametrize("version", ["0.20.2", "0.33.0"])
def test_the_groups_are_those_that_explain_has(name: str, version: str) -> None:
    """With and without a draft layer."""
    path = str(CONFIGS / name)
    for flags, speculation in (([], None), (["--mtp", "1"], Speculation("mtp"))):
        ((model,), serving) = models_of((path,), flags, version)
        assert serving == Serving(version=version, speculation=speculation)
        assert load(path, serving).geometry == model.geometry


def test_what_stays_cached_is_the_release_s(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own interval, in tokens, unless another is given; suffixes come on top."""
    kept = Features(retention_interval_tokens=0, scratch_first=True, keeps_junctions=True)
    assert [Features()] == [model.features for model in models_on("stock", (GPT_OSS,), ())]
    assert [kept] == [model.features for model in models_on("native@0.33.0", (GPT_OSS,), ())]
    flags = ["--prefix-cache-retention-interval", "1024", "--max-num-seqs", "7"]
    (model,) = models_on("native@0.33.0", (f"{GPT_OSS}+transfers",), flags)
    assert (1024, True) == (model.features.retention_interval_tokens, model.features.transfers)
    assert "without effect here: --max-num-seqs\n" == capsys.readouterr().err


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
    assert (0, True) == (checked.exit_code, "gpt_oss" in checked.stdout)
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
        (["--model", GPT_OSS, "--", "--plot", "out.svg"], "after --: --plot is no flag of a server"),
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
