"""The corpus as a page: ``kvgate corpus --draw-seconds 5 --page > difftest/corpus/README.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvgate_mutants.corpus.bug import Bug
from kvgate_mutants.corpus.probe import Result, State
from kvgate_mutants.corpus.tables import markdown, summary

INTRODUCTION = """# The corpus

Real defects of the KV-cache block managers of vLLM, vLLM-Ascend and programs with the same mechanism, as cases that the
gate must catch. Generated, figures and all, by `kvgate corpus --draw-seconds 5 --page > difftest/corpus/README.md`.

Where published code that has a defect runs here, that code is run: vLLM 0.20.2 as installed (`stock`), vLLM-Ascend
0.20.2rc1 (`ascend`), another release (`native@VERSION`). Where it does not, a mutant re-introduces the defect into vLLM
0.20.2, into the plug-in (`retention`) or into vLLM's scheduler, and its reason stands with it. *What it is* says which:
published code; a mutant that re-introduces the wrong rule that was reported (*elsewhere*: in another program than the
reported one); an analogue, a fault of the kind whose reported cause is another or unknown; or a contract violated by
hand, where published code is called as nothing published calls it. Analogues and calls by hand are not among the
defects caught in the first number below.

A case is caught if one of the guarantees that it should violate is seen violated first, and if its control shows
nothing. *Control* says what that is: the same without the mutant; a repair of the code that was run; the reference in
its place; or other settings, under which the same code, defect and all, is not brought to it. The last shows that the
gate is silent there, and not that it would be on fixed code. Seconds are counted once the system is loaded; operations
are those up to the one that shows it. *Drawn* says how soon generated cases, drawn from seeds on the same groups, find
it too: the same guarantee, and nothing that is known to be something else. Whole schedulers and calls past the
operations are not drawn.

```sh
kvgate corpus                # all of them
kvgate corpus 9 21           # some, by number or by id
kvgate corpus --list         # what there is, without running anything
```

A defect is added in `mutants/kvgate_mutants/corpus/bugs/`, with a case, the guarantee it violates, and a control."""


def page(bugs: Sequence[Bug], results: Sequence[Result]) -> str:
    """The whole page."""
    reported = f"{summary(bugs, results)}."
    return "\n\n".join((INTRODUCTION, reported, markdown(bugs, results), *_stories(bugs, results))) + "\n"


def _stories(bugs: Sequence[Bug], results: Sequence[Result]) -> Iterator[str]:
    for bug in bugs:
        parts = [f"## {bug.id}", f"[{bug.thread}]({bug.link}) · {bug.kind.value} · {bug.affected}", bug.title]
        parts += [_trial(bug, result) for result in results if result.bug == bug.id]
        if not bug.trials:
            parts.append(f"Not caught. {bug.not_caught}")
        else:
            parts.append(f"`kvgate corpus {bug.id}`")
        yield "\n\n".join(parts)


def _trial(bug: Bug, result: Result) -> str:
    trial = bug.trials[result.trial]
    version = f", version {result.version}" if result.version else ""
    reported = [f"- `{result.code}`{version}: {result.state.value}"]
    if result.state is State.CAUGHT:
        finding = f", declared as {result.finding}" if result.finding else ""
        reported[0] += f" by {result.detector} as {result.statement}{finding}; control, {result.control}."
    reported.append(f"  {trial.sort.value[0].upper()}{trial.sort.value[1:]}; control: {trial.control.contrast.value}.")
    if trial.remark:
        reported.append(f"  {trial.remark}")
    if trial.why_mutant:
        reported.append(f"  A mutant, for {trial.why_mutant}.")
    reported.append(f"  The gate: `{result.says.replace('`', chr(39))}`")
    return "\n".join(reported)
