"""swa_retention: the package of the vLLM plug-in that keeps sliding-window blocks a later request can resume from.

Nothing is here yet: no entry point is registered, nothing is patched, and to import it changes nothing.
"""
