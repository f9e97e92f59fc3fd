"""The gate at the scheduler's level: a scheduler drives its block manager, and the reference follows."""
