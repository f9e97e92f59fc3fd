"""Conformance: what the reference does to its blocks is what the proofs are about, and what the operation is for.

The reference's pool is recorded (``recording``), its states are seen as states of ``kvspec.pool`` (``picture``), what
was recorded is told as transitions (``labels``), and these are run beside it (``follower``). Two things are judged:

- *what may be* (``allowed``): each change of a block is a transition that can happen, that such an operation may
  consist of, and whose effect is the reference's, map by map. A hit must be on what the request asks for;
- *what must be* (``required``): behind an operation a request names, in every group, exactly the entries that the
  formulas of the group say, and nothing once it is over; a hit that was granted is held whole, its rest is copied, and
  the worker has computed what cannot serve before; what retention says is due becomes known with its own content, once,
  and nothing else does; an eviction forgets its block, a dispatch leaves nothing pending, and a reset happens exactly
  if nobody holds a block.

Of these only what may be is judged, and not what must be: which free block is handed out, and the order in which
blocks wait; how many blocks are demoted, and which are pinned; which of several blocks that hold a content serves a
hit; how long a hit is; whether a request had to be refused. The formulas themselves (``kvreference.geometry``,
``kvreference.retention``), which are proved, the requests' books (``kvreference.population``) and what tells one
content from another (``kvreference.content``) are taken as they are: of a content, no more than its length is checked.
"""
