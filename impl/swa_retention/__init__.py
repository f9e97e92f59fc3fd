"""swa_retention: a vLLM plug-in that keeps the sliding-window blocks from which a later request can resume.

vLLM calls ``swa_retention.plugin.register`` in each of its processes. With no switch set that changes nothing at all;
``python -m swa_retention doctor`` says what it would do here.
"""
