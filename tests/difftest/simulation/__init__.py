"""Tests of the simulation of serving."""
