"""What ``kvgate prove`` says of the proofs of ``kvspec``."""
