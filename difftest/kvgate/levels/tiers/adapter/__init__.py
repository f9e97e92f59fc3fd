"""A KV connector of vLLM's own, as the level of two tiers drives it."""
