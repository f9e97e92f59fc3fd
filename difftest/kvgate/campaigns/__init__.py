"""Fuzzing: campaigns for hours, cut into shards that any worker can run, and run again if it is lost."""
