"""The copies of partial hits, done by the worker in its KV-cache tensors before the step computes."""
