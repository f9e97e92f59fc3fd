"""Finding 006: With look-ahead and blocks of two sizes, a hit shorter than the window loses a whole alignment."""

from kvgate.findings.explaining import hits_whole_blocks, looks_up_with
from kvgate.findings.finding import Finding
from kvgate.findings.shared_faults import LookUpInTurn


class AlignedBeforeTheDrop(LookUpInTurn):
    """Where the window reaches back to the first token, the match is aligned before its look-ahead block is dropped."""

    aligns_before_the_drop = True


FINDING = Finding(
    id="006-aligned-before-the-drop",
    rank=7,
    where=hits_whole_blocks,
    fault=AlignedBeforeTheDrop,
    without=LookUpInTurn,
    together_with=(
        "002-gate-subtracts-skipped-blocks",
        "008-external-tokens-take-other-hits",
        "009-load-forgets-its-last-token",
        "011-mask-omits-look-ahead",
        "012-prompt-tail-that-serves-nobody",
    ),
    explains_hit=looks_up_with(AlignedBeforeTheDrop),
)
