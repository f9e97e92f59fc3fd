"""The result of an obligation: whether it is proved, whether it says something, and whether it can fail.

A proof by itself is worth little. The assumptions might never hold: every witness must be found. The claim might hold
for any code: every mutant must be refuted.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from typing import TypeVar

from attrs import evolve, field, frozen

from kvspec import proofs
from kvspec.obligation import Obligation
from kvspec.prover import Proof, Values, Verdict, prove, survives, witness
from kvspec.registry import modules, obligations
from kvspec.second_solver import Opinion, SecondSolver
from kvspec.symbolic import heard_by, seeded

JOBS = 2
"""How many processes prove at once by default."""


Given = TypeVar("Given")
Result = TypeVar("Result")


class Outcome(Enum):
    """The verdict of a result."""

    PROVED = "proved"
    REFUTED = "refuted"
    VACUOUS = "empty"
    """The assumptions contradict each other, or a mutant that should be refuted is proved: the proof says nothing."""
    UNKNOWN = "unknown"
    SILENT = "silent"
    """It says nothing of the values that were fixed: what it assumes is not so there."""
    DISPUTED = "disputed"
    """A second solver answers a question the other way."""


@frozen
class Options:
    """How obligations are checked."""

    proof_only: bool = False
    """Whether witnesses and mutants are left out."""
    seeds: int = 1
    """With how many seeds of z3 each is checked, from 0 on."""
    second: bool = False
    """Whether cvc5 is asked, too, with the first seed."""
    mutants: bool = True
    """Whether mutants are tried; never with ``proof_only``."""


PLAIN = Options()


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
    second: Opinion | None = None
    """The answers of cvc5 to the questions that the proof rests on; None if it was not asked."""
    second_of_mutants: Opinion | None = None
    """The answers of cvc5 to the refutation of each mutant."""
    processor_seconds: float = 0.0
    """The processor time that it took, with all seeds: other work prolongs it less than ``seconds``."""
    by_seed: Mapping[int, Outcome] = field(factory=dict)
    """The outcome with each other seed of z3 that was tried."""

    @property
    def outcome(self) -> Outcome:
        """The worst of what was seen: a refutation before an empty statement, before what is unknown."""
        verdicts = [proof.verdict for proof in self.mutants.values()]
        with_seeds = {*self.by_seed.values()}
        if any(each.disagreements for each in (self.second, self.second_of_mutants) if each):
            return Outcome.DISPUTED
        if self.proof.verdict is Verdict.REFUTED or Outcome.REFUTED in with_seeds:
            return Outcome.REFUTED
        if self.proof.verdict is Verdict.VACUOUS:
            return Outcome.SILENT if self.task.fixed else Outcome.VACUOUS
        empty = {Verdict.PROVED, Verdict.VACUOUS} & set(verdicts) or None in self.witnesses.values()
        if empty or Outcome.VACUOUS in with_seeds:
            return Outcome.VACUOUS
        if Verdict.UNKNOWN in (self.proof.verdict, *verdicts) or with_seeds - {Outcome.PROVED}:
            return Outcome.UNKNOWN
        return Outcome.PROVED

    def why(self) -> Iterator[str]:
        """The reasons why it is not proved, a line each."""
        if self.proof.detail:
            yield self.proof.detail
        yield from (f"no values show: {name}" for name, values in self.witnesses.items() if values is None)
        for name, proof in self.mutants.items():
            if proof.verdict is not Verdict.REFUTED:
                yield f"with the mutant {name} it is {proof.verdict.value}{': ' if proof.detail else ''}{proof.detail}"
        for seed, outcome in self.by_seed.items():
            if outcome is not Outcome.PROVED:
                yield f"with the seed {seed} of z3 it is {outcome.value}"
        for opinion in (self.second, self.second_of_mutants):
            if opinion and opinion.disagreements:
                yield f"cvc5 answers the other way: {len(opinion.disagreements)} of {opinion.asked} questions"


def check_obligation(obligation: Obligation, task: Task, options: Options = PLAIN) -> ProofResult:
    """Prove ``obligation``, look for its witnesses, and try its mutants if that is one of the ``options``.

    Witnesses and mutants belong to the statement, not to a choice of values: with fixed values there are none.
    """
    started, processor_started = time.perf_counter(), time.process_time()
    second, of_mutants = SecondSolver(), SecondSolver(refutations_only=True)
    with _asked_too(second, options):
        proof = prove(obligation, task.fixed)
    checked = not (options.proof_only or task.fixed)
    tried = obligation.mutants if checked and options.mutants else ()
    witnesses = {name: witness(obligation, name) for name in (obligation.witnesses if checked else ())}
    with _asked_too(of_mutants, options):
        mutants = {mutant.name: survives(obligation, mutant) for mutant in tried}
    opinion, of_those = (each.opinion if options.second else None for each in (second, of_mutants))
    seconds = time.perf_counter() - started, time.process_time() - processor_started
    return ProofResult(task, proof, witnesses, mutants, seconds[0], opinion, of_those, seconds[1])


@contextmanager
def _asked_too(second: SecondSolver, options: Options) -> Iterator[None]:
    """Meanwhile the ``second`` solver is asked what z3 is, if that is one of the ``options``."""
    if not options.second:
        yield
        return
    with heard_by(second.hear):
        yield


def check_all(tasks: Sequence[Task], options: Options = PLAIN, jobs: int = JOBS) -> Iterator[ProofResult]:
    """Check ``tasks`` in ``jobs`` processes; each is yielded in its turn, as soon as it is done with all seeds."""
    work = [
        (task, evolve(options, second=options.second and seed == 0), seed)
        for task in tasks
        for seed in range(options.seeds)
    ]
    results = in_processes(_check_task, work, jobs)
    while by_seed := list(islice(results, options.seeds)):
        first, *others = by_seed
        outcomes = {seed: each.outcome for seed, each in enumerate(others, 1)}
        yield evolve(first, by_seed=outcomes, processor_seconds=sum(each.processor_seconds for each in by_seed))


def in_processes(work: Callable[[Given], Result], given: Sequence[Given], jobs: int) -> Iterator[Result]:
    """The results of ``work`` for each of ``given``, in order, in ``jobs`` processes.

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


def _check_task(work: tuple[Task, Options, int]) -> ProofResult:
    task, options, seed = work
    with seeded(seed):
        return check_obligation(obligations()[task.obligation], task, options)


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop the standard error of processes that are started meanwhile.

    An error of the work is passed on; only the output of a process that was ended while it started is lost.
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
