"""Live checks: a running OpenAI-compatible server is driven from outside, and its answers are compared."""
