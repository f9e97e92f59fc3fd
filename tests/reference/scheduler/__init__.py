"""Tests of the scheduler's reference."""
