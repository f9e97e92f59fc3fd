"""kvreference: what the hybrid KV-cache block manager means, as a program that is slow and obviously right."""
