"""The result of an obligation: whether it is proved, whether it says something, and whether it can fail.

A proof alone is worth little. What is assumed might never be so: every witness must be found. What is shown might be so
whatever the code does: every mutant must be refuted.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar

from attrs import field, frozen

from kvspec import proofs
from kvspec.obligation import Obligation
from kvspec.prover import Proof, Values, Verdict, prove, survives, witness
from kvspec.registry import modules, obligations

JOBS = 2
"""How many processes prove at once by default."""


Given = TypeVar("Given")
Result = TypeVar("Result")


class Outcome(Enum):
    """What a result comes to."""

    PROVED = "proved"
    REFUTED = "refuted"
    VACUOUS = "empty"
    """What is assumed cannot be, or a mutant that should be refuted is proved: it says nothing."""
    UNKNOWN = "unknown"
    SILENT = "silent"
    """It says nothing of the values that were fixed: what it assumes is not so there."""


@frozen
class Task:
    """One obligation, for all values of its unknowns or with some of them fixed."""

    obligation: str
    fixed: Mapping[str, int] = field(factory=dict)
    where: str = ""
    """Of what the fixed values are."""


@frozen
class ProofResult:
    """One task, checked."""

    task: Task
    proof: Proof
    witnesses: Mapping[str, Values | None]
    """Per witness, values that show it; None if there are none."""
    mutants: Mapping[str, Proof]
    """Per mutant, what becomes of the obligation with it."""
    seconds: float

    @property
    def outcome(self) -> Outcome:
        """The worst of what was seen: a refutation before an empty statement, before what is unknown."""
        verdicts = [proof.verdict for proof in self.mutants.values()]
        if self.proof.verdict is Verdict.REFUTED:
            return Outcome.REFUTED
        if self.proof.verdict is Verdict.VACUOUS:
            return Outcome.SILENT if self.task.fixed else Outcome.VACUOUS
        if {Verdict.PROVED, Verdict.VACUOUS} & set(verdicts) or None in self.witnesses.values():
            return Outcome.VACUOUS
        if Verdict.UNKNOWN in (self.proof.verdict, *verdicts):
            return Outcome.UNKNOWN
        return Outcome.PROVED

    def why(self) -> Iterator[str]:
        """What keeps it from being proved, a line each."""
        if self.proof.detail:
            yield self.proof.detail
        yield from (f"no values show: {name}" for name, values in self.witnesses.items() if values is None)
        for name, proof in self.mutants.items():
            if proof.verdict is not Verdict.REFUTED:
                yield f"with the mutant {name} it is {proof.verdict.value}{': ' if proof.detail else ''}{proof.detail}"


def check_obligation(obligation: Obligation, task: Task, proof_only: bool = False) -> ProofResult:
    """Prove ``obligation``, look for its witnesses, and try its mutants.

    Witnesses and mutants belong to the statement, not to a choice of values: with fixed values there are none.
    """
    started = time.perf_counter()
    proof = prove(obligation, task.fixed)
    checked = not (proof_only or task.fixed)
    witnesses = {name: witness(obligation, name) for name in (obligation.witnesses if checked else ())}
    mutants = {mutant.name: survives(obligation, mutant) for mutant in (obligation.mutants if checked else ())}
    return ProofResult(task, proof, witnesses, mutants, time.perf_counter() - started)


def check_all(tasks: Sequence[Task], proof_only: bool = False, jobs: int = JOBS) -> Iterator[ProofResult]:
    """Check ``tasks`` in ``jobs`` processes; each is yielded in its turn, as soon as it is done."""
    yield from in_processes(_check_task, [(task, proof_only) for task in tasks], jobs)


def in_processes(work: Callable[[Given], Result], given: Sequence[Given], jobs: int) -> Iterator[Result]:
    """What ``work`` makes of each of ``given``, in its turn, in ``jobs`` processes of their own.

    Even one is done elsewhere: z3 handles interrupts itself while it works, and loses them. And each is done in a
    process that has done nothing else: how z3 goes about a question depends on what it was asked before.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *(f"{proofs.__name__}.{module}" for module in modules())])
    with _quiet():
        # The first process starts the server that forks all others, and that keeps what is standard error now.
        first = context.Process(target=_leave_interrupts)
        first.start()
    first.join()
    with context.Pool(jobs, _leave_interrupts, maxtasksperchild=1) as pool:
        yield from pool.imap(work, given)


def _check_task(work: tuple[Task, bool]) -> ProofResult:
    task, proof_only = work
    return check_obligation(obligations()[task.obligation], task, proof_only)


@contextmanager
def _quiet() -> Iterator[None]:
    """What processes that are started meanwhile write to standard error is lost.

    An error of the work is handed over; what is left is what a process says that was ended while it started.
    """
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _leave_interrupts() -> None:
    """An interrupt is for the process that waits for the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
