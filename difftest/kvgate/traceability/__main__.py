"""``python -m kvgate.traceability``: print the page, or say what is missing, dangling or stale."""

import sys

from kvgate.traceability.complaints import complaints
from kvgate.traceability.page import page
from kvgate.traceability.sources import read

sources = read()
print(page(sources), end="")
for complaint in (found := complaints(sources)):
    print(complaint, file=sys.stderr)
sys.exit(1 if found else 0)
