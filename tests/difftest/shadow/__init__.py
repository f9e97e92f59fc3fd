"""The shadow of a live worker."""
