"""The shadow of a live worker: what its block manager did, recorded, and followed by the reference."""
