"""Tests of kvgate.live."""
