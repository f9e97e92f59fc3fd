"""A plug-in of pytest for vLLM's own tests: what the environment asks for is in place before they are imported."""

from swa_retention.plugin import register

register()
