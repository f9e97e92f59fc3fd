"""What was published beside hit rates, and depends on a device: no simulation of a scheduler can tell it."""

from __future__ import annotations

from benchmarks.headlines.figure import OutOfReach

WHY = "a time on a device"
FIGURES = (
    OutOfReach("8k x 32: TTFT, mean", "14593.2 to 6098.9 ms", WHY),
    OutOfReach("8k x 32: TPOT, mean", "36.9 to 27.9 ms", WHY),
    OutOfReach("8k x 32: requests per second", "0.6023 to 0.8658", WHY),
    OutOfReach("32k x 32: TTFT, mean", "14298.8 to 8623.7 ms", WHY),
    OutOfReach("32k x 32: prefill throughput", "2291.9 to 3800.2 tokens/s", WHY),
    OutOfReach("28k prefixes, 30 of them, with pinning: TTFT, mean", "1970 to 499 ms", WHY),
    OutOfReach("GPQA Diamond, accuracy", "89.90 %", "needs the model's weights; sound blocks are the scheduler's part"),
)
