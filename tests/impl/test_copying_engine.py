"""Partial hits in a real engine on a CPU: the same tokens, with less computed.

Goal: a prompt that leaves another one's inside a block continues exactly as in an engine without prefix caching. The
tokens would tell if the copy were not done, done from another block, or done as if this backend kept slots apart.
Method: Gemma 4 in small with random weights, of which vLLM itself makes two groups with blocks of 16 and of 64 tokens.
Two engines, each in a process of its own that this file starts from itself.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvgate.adapters.cpu_engine.checkpoint import model_in
from kvgate.adapters.cpu_engine.engine import ENVIRONMENT, IN_PROCESS, groups_of, runner_of, start
from kvgate.adapters.cpu_engine.hybrids import VOCABULARY

pytestmark = pytest.mark.deep

TOKENS_MAX = 24
SETTINGS = {**ENVIRONMENT, **IN_PROCESS, "VLLM_PLUGINS": "swa_retention"}
BREAKS = ("nothing is copied", "another block is copied", "slots by the shape")


def prompts() -> tuple[list[int], list[list[int]]]:
    """A prompt, and others that share its first 85, 170 and 40 tokens."""
    draw = random.Random(0)

    def drawn(count: int) -> list[int]:
        return [draw.randrange(3, VOCABULARY) for _ in range(count)]

    first = drawn(200)
    return first, [[*first[:85], *drawn(60)], [*first[:170], *drawn(3)], [*first[:40], *drawn(30)]]


def engine(folder: str, caches: bool) -> Any:
    """An engine whose random weights make every token depend on all before it."""
    return start(
        model_in(Path(folder) / str(caches), "gemma-4"),
        enable_prefix_caching=caches,
        num_gpu_blocks_override=200,
        max_model_len=512,
    )


def continued(made: Any) -> list[tuple[int, list[int]]]:
    """Of the first prompt, and then of the others in one step: how much was cached, and what comes after it."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=TOKENS_MAX, ignore_eos=True, detokenize=False)
    first, others = prompts()
    answers = []
    for together in ([first], others):
        asked = [{"prompt_token_ids": prompt} for prompt in together]
        answers += made.generate(asked, sampling, use_tqdm=False)
    return [(answer.num_cached_tokens, list(answer.outputs[0].token_ids)) for answer in answers]


@contextmanager
def broken(name: str, made: Any) -> Iterator[None]:
    """The plug-in with one thing wrong."""
    from attrs import evolve

    from swa_retention.copying import runner

    def from_another(runner_: Any, copies: Any) -> None:
        copy_blocks(runner_, [evolve(copy, source=199) for copy in copies])

    copy_blocks: Callable[..., None] = runner.copy_blocks
    attribute, by = {
        "nothing is copied": ("copy_blocks", lambda *_all: None),
        "another block is copied": ("copy_blocks", from_another),
        "slots by the shape": ("keeps_slots_apart", lambda _backend: True),
    }[name]
    # The tensors' layout is kept with the runner.
    vars(runner_of(made)).pop("swa_retention_regions", None)
    sound = getattr(runner, attribute)
    setattr(runner, attribute, by)
    try:
        yield
    finally:
        setattr(runner, attribute, sound)


def main(folder: str, caches: bool) -> None:
    """An engine's tokens; with caching, also those with the plug-in broken."""
    made = engine(folder, caches)
    said = {"blocks": [size for _, size in groups_of(made)], "sound": continued(made)}
    for name in BREAKS if caches else ():
        assert made.reset_prefix_cache(), "no request holds a block"
        with broken(name, made):
            said[name] = continued(made)
    print(json.dumps(said))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The tokens of both engines, those without caching as ``plain``."""
    platforms = pytest.importorskip("vllm.platforms")
    if not platforms.current_platform.is_cpu():
        pytest.skip("this vLLM is not built for CPUs")
    folder = tmp_path_factory.mktemp("model")
    started = []
    for caches in (True, False):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")} | SETTINGS
        if caches:
            environment["VLLM_PREFIX_CACHE_PARTIAL_HITS"] = "auto"
        command = [sys.executable, str(Path(__file__)), str(folder), str(int(caches))]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment))
    cached, plain = (finished(process) for process in started)
    return {**cached, "plain": plain["sound"]}


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    """A process's last line."""
    try:
        output, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert 0 == process.returncode, errors[-4000:]
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


def test_the_model_has_blocks_of_two_sizes(said: dict[str, Any]) -> None:
    """vLLM makes them so that all pages are of one size; nothing is set up for the test."""
    assert [16, 64] == said["blocks"]


def test_hits_end_inside_blocks(said: dict[str, Any]) -> None:
    """At the last multiple of 16 that is shared, where vLLM hits 64 and 128 tokens, and of the last prompt none."""
    assert [0, 80, 160, 32] == [cached for cached, _ in said["sound"]]


def test_the_tokens_are_those_of_an_engine_without_caching(said: dict[str, Any]) -> None:
    """All of them, for all prompts, of which one step admits three."""
    assert [0, 0, 0, 0] == [cached or 0 for cached, _ in said["plain"]]
    assert [tokens for _, tokens in said["plain"]] == [tokens for _, tokens in said["sound"]]


@pytest.mark.parametrize("name", BREAKS)
def test_the_tokens_tell_a_wrong_copy(said: dict[str, Any], name: str) -> None:
    """Of every prompt that was served by one; the first prompt, which was not, continues as ever."""
    assert said["sound"][0] == said[name][0]
    same = [sound == wrong for sound, wrong in zip(said["sound"], said[name], strict=True)]
    assert [False] * 3 == same[1:]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "1")
