"""Pages of divergences."""
