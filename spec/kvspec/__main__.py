"""``python -m kvspec``: print the page of the guarantees, which is kept as ``spec/statements.md``."""

from kvspec.statements_page import page

print(page(), end="")
