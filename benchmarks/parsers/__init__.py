"""Every parser of what comes from outside, under a million hostile inputs: each is accepted, or refused in words."""
