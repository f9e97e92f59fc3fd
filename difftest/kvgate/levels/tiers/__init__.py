"""A second tier: a KV connector of vLLM's own moves blocks between the device and the host."""
