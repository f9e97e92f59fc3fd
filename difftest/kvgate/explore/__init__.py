"""The explorer: every reachable state of a small configuration, and the shortest way to one that should not be."""
