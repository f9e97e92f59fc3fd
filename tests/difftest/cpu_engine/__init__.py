"""Tests of kvgate.adapters.cpu_engine, and of what is checked on real engines."""
