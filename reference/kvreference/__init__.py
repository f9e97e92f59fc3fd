"""kvreference: what the hybrid KV-cache block manager means, as a program that is slow and obviously right.

``spec/README.md`` has a path through it for a first reading. In short: ``block_pool`` and ``holdings`` say who holds a
block, ``cached_map`` and ``caching`` what is cached, ``hit_lookup`` what a request is served, and ``manager`` makes the
operations of these.
"""
