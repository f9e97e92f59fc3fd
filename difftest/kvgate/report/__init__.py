"""Reports: one verdict for a person, a program, a test dashboard and a pull request."""
