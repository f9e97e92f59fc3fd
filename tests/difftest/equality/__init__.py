"""Tests of kvgate.equality."""
