"""The reference in ranges: runs of equal blocks are one object, so that prompts of millions of tokens are cheap."""
