"""The defects, a file for each kind of harm. The scenarios are those of the reports, smaller where size is no matter."""
