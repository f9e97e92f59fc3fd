"""The lemmas on which every other proof with products of unknowns rests: what ``kvspec.products`` says is so.

They are about z3's own products, so nothing is assumed of them here.
"""

from __future__ import annotations

from kvspec.obligation import Count, Obligation, only
from kvspec.products import LARGER_BY, larger
from kvspec.symbolic import Truth, expression_of

OBLIGATIONS: tuple[Obligation, ...] = ()
