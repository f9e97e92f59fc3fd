"""The model runners of vLLM and vLLM-Ascend, as published, on a machine without a device."""
