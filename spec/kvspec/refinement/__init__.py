"""Refinement: each step of the reference consists of proved transitions, and does what it is for.

``recording`` records the calls of the reference's pool. ``picture`` maps its states to states of ``kvspec.pool``.
``step`` translates the calls to transitions, and ``follower`` runs these next to the pool. Two things are checked:

- *what may happen* (``kvspec.simulation``): each change of a block is a transition that can happen and that such an
  operation may consist of. Its effect is the reference's, map by map. A hit must be on what the request asks for.
- *what must happen* (``requirements.REQUIRED``): after an operation a request names, in every group, just the entries
  that the formulas of the group say, and nothing once it is over. A granted hit is held whole, its rest is copied, and
  the worker has computed what cannot serve before. What retention says is due becomes known with its own content, once,
  and nothing else does. An eviction forgets its block, a dispatch leaves nothing pending, and a reset happens if and
  only if no block is held.

The second check leaves out: which free block is allocated, and the order in which blocks wait; how many blocks are
demoted, and which are pinned; which of several blocks with a content serves a hit; how long a hit is; whether a request
had to be rejected. Taken as they are: the formulas (``kvreference.geometry``, ``kvreference.retention``), which are
proved; the requests' state (``kvreference.population``); and the identity of content (``kvreference.content``), of
which only the length is checked.
"""
