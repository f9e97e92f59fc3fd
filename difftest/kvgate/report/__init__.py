"""Reports: one verdict told to a person, to a program, to a test dashboard and to a pull request."""
