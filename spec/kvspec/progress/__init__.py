"""Progress on terms: the running scheduler's rules over requests and blocks that are only counted."""
