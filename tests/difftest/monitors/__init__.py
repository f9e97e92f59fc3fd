"""Tests of the monitors, which check a system without the reference."""
