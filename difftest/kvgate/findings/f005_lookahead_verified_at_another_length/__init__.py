"""Finding 005: A hit is served although a window's look-ahead block is not cached."""

from kvgate.findings.explaining import hits_whole_blocks, looks_up_with
from kvgate.findings.finding import Finding
from kvgate.findings.shared_faults import LookUpInTurn

FINDING = Finding(
    id="005-lookahead-verified-at-another-length",
    rank=6,
    where=hits_whole_blocks,
    fault=LookUpInTurn,
    together_with=("012-prompt-tail-that-serves-nobody",),
    explains_hit=looks_up_with(LookUpInTurn),
)
