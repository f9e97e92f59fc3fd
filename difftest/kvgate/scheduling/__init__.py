"""Scheduler-level lockstep: vLLM's own scheduler drives vLLM's own block manager, and the reference follows."""
