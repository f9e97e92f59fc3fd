"""A scheduler on top of the block manager: who computes what in each step, such that everybody gets on."""
