"""Tests of kvgate.adapters.device."""
