"""The plug-in with vLLM-Ascend's published modules, on a machine without an NPU."""
