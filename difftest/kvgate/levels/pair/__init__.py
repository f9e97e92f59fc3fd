"""Disaggregation: one node computes prompts, another answers, and blocks go from the first to the second."""
