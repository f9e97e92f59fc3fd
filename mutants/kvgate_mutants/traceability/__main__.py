"""``python -m kvgate_mutants.traceability``: print the page, or say what is missing, dangling or stale."""

import sys

from kvgate_mutants.traceability.complaints import complaints
from kvgate_mutants.traceability.page import page
from kvgate_mutants.traceability.sources import read

sources = read()
print(page(sources), end="")
for complaint in (found := complaints(sources)):
    print(complaint, file=sys.stderr)
sys.exit(1 if found else 0)
