"""Tests of kvreference, one file per module and, for the manager, one per thing that it does."""
