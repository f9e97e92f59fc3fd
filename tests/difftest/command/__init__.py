"""Tests of the command: what is printed, what is written, and the exit codes."""
