"""Chapter 11: everybody gets on.

Three parts: the steps that a request still needs are a ranking (``kvspec.progress.ranks``); what is said to be needed
is enough, and room stays room (``kvspec.progress.rooms``); in every state, a step of the running scheduler brings the
first in line on (``kvspec.progress.steps``). Together they bound every wait: the first is brought on, and nobody is
set back.
"""

from __future__ import annotations

from kvspec.progress.ranks import RANKS
from kvspec.progress.rooms import ROOMS
from kvspec.progress.steps import STEPS

OBLIGATIONS = (*RANKS, *ROOMS, *STEPS)
