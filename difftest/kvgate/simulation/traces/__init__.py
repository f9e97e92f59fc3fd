"""Public request traces as workloads: which prompts shared their beginnings, and for how long."""
