"""A plug-in of pytest for vLLM's own tests where its wheel is for GPUs, and there is none: its platform is the CPU."""

from __future__ import annotations

import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vars(vllm.platforms)["_current_platform"] = CpuPlatform()
