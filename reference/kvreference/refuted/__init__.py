"""Designs that do not work, each with one thing changed: what the guards of the sound ones are for."""
