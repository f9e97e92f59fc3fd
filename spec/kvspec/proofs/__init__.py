"""What is proved, one module per chapter of the specification."""
