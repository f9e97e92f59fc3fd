"""Tests of the monitors, which judge a system without the reference."""
