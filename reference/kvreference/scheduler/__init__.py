"""A scheduler on top of the block manager: what each request computes in each step, such that every request makes
progress."""
