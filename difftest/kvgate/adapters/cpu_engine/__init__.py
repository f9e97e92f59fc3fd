"""A real engine on a CPU: vLLM 0.20.2 with tiny hybrid models of random weights, in this process or as a server."""
