"""Tests of kvgate.adapters.cpu_engine, and of what is judged on real engines."""
