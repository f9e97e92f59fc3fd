"""A program: engines that answer, one for each job, in children that share one import of vLLM.

It reads one job a line and writes the engine's answer as one line, in JSON; what vLLM prints goes to standard error. A
child is forked before torch has computed anything, so it has no thread of its parent's to wait for.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvgate.adapters.cpu_engine.engine import groups_of, prepare_environment, scheduler_of, start
from kvgate.adapters.cpu_engine.job import DRAFT, Answer, Ask, Job, JobResult, document, job_of
from kvgate.adapters.cpu_engine.plugged import mutants_named

if TYPE_CHECKING:
    from vllm import LLM

_ERROR_CHARACTERS_MAX = 2000


def main(folder: Path) -> None:
    """Answer jobs until there are none left; models are made in ``folder`` when they are first asked for."""
    speaking = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    prepare_environment()
    _import_once()
    for line in sys.stdin:
        job = job_of(json.loads(line))
        _in_child(job, folder)
        speaking.write((folder / "told.json").read_text() + "\n")
        speaking.flush()


def _import_once() -> None:
    """What every engine imports, and no plug-in changes by being imported after it."""
    for module in (
        "vllm.entrypoints.llm",
        "vllm.v1.core.sched.scheduler",
        "vllm.v1.worker.cpu_worker",
        "vllm.model_executor.models.gemma3",
        "vllm.model_executor.models.gpt_oss",
    ):
        import_module(module)


def _in_child(job: Job, folder: Path) -> None:
    """Answer a job in a child of its own, which writes its result to a file."""
    result_path = folder / "told.json"
    result_path.write_text(json.dumps(document(JobResult(job.name, error="the engine's process died"))))
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        prepare_environment(job.plug_ins, job.environment)
        result = answer(job, folder)
    except BaseException as error:
        traceback.print_exc()
        result = JobResult(job.name, error=f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS_MAX])
    result_path.write_text(json.dumps(document(result)))
    # As any process ends, so that a watcher of the engine sees that it has ended.
    sys.exit(0)


def answer(job: Job, folder: Path) -> JobResult:
    """Start an engine in this process, and ask it."""
    from kvgate.adapters.cpu_engine.checkpoint import model_in

    began = time.monotonic()
    with ExitStack() as faults:
        for mutant in mutants_named(job.mutants):
            faults.enter_context(mutant.applied())
        engine = start(model_in(folder, job.model), **_options(job, folder))
        answers: list[Answer] = []
        prompts: list[tuple[int, ...]] = []
        for each_round in job.rounds:
            asked = [_prompt(ask, prompts, answers) for ask in each_round]
            answers += _answers(engine, asked, job.answer_tokens)
            prompts += asked
        return _job_result(job, engine, answers, time.monotonic() - began)


def _options(job: Job, folder: Path) -> dict[str, Any]:
    """The engine's options, with the draft model's folder in its place."""
    from kvgate.adapters.cpu_engine.checkpoint import draft_in

    options = dict(job.options)
    drafts = options.get("speculative_config")
    if drafts and drafts.get("model") == DRAFT:
        options["speculative_config"] = {**drafts, "model": str(draft_in(folder, job.model))}
    return options


def _prompt(ask: Ask, prompts: Sequence[tuple[int, ...]], answers: Sequence[Answer]) -> tuple[int, ...]:
    before = () if ask.after is None else (*prompts[ask.after], *answers[ask.after].tokens)
    return (*before, *ask.tokens)


def _answers(engine: LLM, prompts: Sequence[tuple[int, ...]], answer_tokens: int) -> list[Answer]:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=answer_tokens, ignore_eos=True, detokenize=False, logprobs=2)
    asked: Any = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
    answers = []
    for output in engine.generate(asked, sampling, use_tqdm=False):
        completion: Any = output.outputs[0]
        ranked = [sorted((each.logprob for each in place.values()), reverse=True) for place in completion.logprobs]
        answers.append(
            Answer(
                tokens=tuple(completion.token_ids),
                cached_tokens=output.num_cached_tokens or 0,
                first_logprob=completion.logprobs[0][completion.token_ids[0]].logprob,
                gap=min(best[0] - best[1] for best in ranked),
            )
        )
    return answers


def _job_result(job: Job, engine: LLM, answers: Sequence[Answer], seconds: float) -> JobResult:
    pool = scheduler_of(engine).kv_cache_manager.block_pool
    tier = getattr(pool, "pinned_tier", None)
    counted: dict[str, Any] = {each.name: getattr(each, "value", 0) for each in engine.get_metrics()}
    return JobResult(
        name=job.name,
        answers=tuple(answers),
        groups=tuple(groups_of(engine)),
        preemptions=int(counted.get("vllm:num_preemptions", 0)),
        drafts=int(counted.get("vllm:spec_decode_num_draft_tokens", 0)),
        drafts_accepted=int(counted.get("vllm:spec_decode_num_accepted_tokens", 0)),
        cached_blocks=sum(block.block_hash is not None for block in pool.blocks),
        pinned_blocks=0 if tier is None else sum(tier.pinned),
        seconds=seconds,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
