"""The defects, a file for each kind of harm. Scenarios are those of the reports, smaller where size does not count."""
