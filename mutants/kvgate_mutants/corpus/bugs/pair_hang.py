"""Requests that wait for ever on two nodes: what one holds for the other is never asked for."""

from __future__ import annotations

from kvgate.levels.pair.case import PairStage
from kvgate.levels.pair.operations import Acknowledged, Ask, Node, Operation, StepOn, Transferred
from kvgate_mutants.corpus.bug import Bug, Contrast, Control, Kind, Trial
from kvgate_mutants.corpus.bugs.groups import full, of
from kvgate_mutants.corpus.scenario import Pairs, tokens
from kvgate_mutants.mutants.corpus import schedulers
from kvreference.operations import Arrive
from kvreference.settings import Settings

_OTHER = 1_000_000
_PREFILL, _DECODE = StepOn(Node.PREFILL), StepOn(Node.DECODE)


def _ask(number: int, prompt: int) -> Ask:
    return Ask(Arrive(number, tokens(number * _OTHER, prompt)), answers_max=2)


_UNTIL_LOADED: tuple[Operation, ...] = (
    _ask(0, 64),
    _ask(1, 48),
    _PREFILL,
    # Both are let in on the decode node, and its seven blocks are gone.
    _DECODE,
    Transferred(0),
    Transferred(1),
    Acknowledged(0),
    Acknowledged(1),
    _PREFILL,
)
_MORE_COME: tuple[Operation, ...] = (_ask(2, 64), _ask(3, 64), _ask(4, 64), _PREFILL)
_BOTH_GO_ON: tuple[Operation, ...] = (_DECODE, _PREFILL, _DECODE, _PREFILL, _DECODE, _PREFILL)

PREFILLED_NEVER_DECODED = Pairs(
    Settings(of(full(eagle=True)), 8, tokens_max=256, chunk_tokens=128, drafts_max=1),
    PairStage(prefill_blocks=10, prefill_chunk_tokens=128),
    (*_UNTIL_LOADED, *_MORE_COME, *_BOTH_GO_ON),
    # The repair refuses what the reference would grant.
    with_reference=False,
)
"""Prompts are computed, and the decode node, full of what it has loaded, answers nobody; then the prefill node, which
holds what the decode node does not read, computes no more prompts either."""

BUGS = (
    Bug(
        38,
        "prefilled-and-never-decoded",
        Kind.HANG,
        "https://github.com/vllm-project/vllm-ascend/pull/10193",
        "With a prefill and a decode node prompts are computed, and the decode node loops for ever and answers nobody.",
        "vLLM-Ascend 0.20.2rc with this pull request, as reported; the cause shown here is in vLLM up to 0.28",
        (
            Trial(
                "stock",
                PREFILLED_NEVER_DECODED,
                ("KV-LIVE-03",),
                words="on the prefill node waits for its blocks to be read by",
                otherwise=Control(
                    "loads leave room for a step",
                    "stock",
                    PREFILLED_NEVER_DECODED,
                    (schedulers.loads_leave_room_for_a_step,),
                    Contrast.REPAIR,
                ),
                remark="The report is a comment that names the symptom and the deployment, and no cause. Of what vLLM "
                "0.20.2 has published, this brings it about, with the draft layers that such deployments have: "
                "vllm-project/vllm#57104 on the decode node. On 0.23.0 the same run shows it too, and on 0.33.0, which "
                "has that fix, it goes on. Another candidate, boundaries that the pull request once offered anew in "
                "every decode step, slows the loop and does not stop it: KV-WORK-01, and a mutant of the plug-in.",
            ),
        ),
    ),
)
