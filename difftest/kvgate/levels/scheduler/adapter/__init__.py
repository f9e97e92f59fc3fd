"""vLLM's own scheduler, as something that can be driven and followed."""
