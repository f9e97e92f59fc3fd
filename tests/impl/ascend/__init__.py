"""The plug-in beside vLLM-Ascend's published modules, on a machine without an NPU."""
