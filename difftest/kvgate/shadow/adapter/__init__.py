"""Where the shadow meets a live vLLM: the plug-in, and what it observes."""
