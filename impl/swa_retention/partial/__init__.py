"""Partial hits: a hit that ends inside a block, served by a copy of the slots before its end."""
