"""What is replaced in vLLM 0.20.2, a file for each of its parts."""
