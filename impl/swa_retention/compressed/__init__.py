"""Compressed attention (DeepSeek-V4): sizes of blocks and pages, and the units that they are counted in."""
