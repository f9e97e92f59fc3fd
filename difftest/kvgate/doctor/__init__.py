"""The doctor: what is installed here, what of kvgate works with it, and what would fix the rest."""
