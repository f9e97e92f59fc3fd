"""vLLM's real scheduler, as an arm of a simulation."""
