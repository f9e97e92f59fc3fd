"""Refinement: each step of the reference is made of the transitions that are proved, and does what it is for.

The reference's pool is recorded (``recording``), its states are mapped to states of ``kvspec.pool`` (``picture``), what
was recorded is translated to transitions (``step``), and these are run next to it (``follower``). Two things are
checked:

- *what may happen* (``requirements.ALLOWED``): each change of a block is a transition that can happen, that such an
  operation may consist of, and whose effect is the reference's, map by map. A hit must be on what the request asks for;
- *what must happen* (``requirements.REQUIRED``): after an operation a request names, in every group, just the entries
  that the formulas of the group say, and nothing once it is over; a hit that was granted is held whole, its rest is
  copied, and the worker has computed what cannot serve before; what retention says is due becomes known with its own
  content, once, and nothing else does; an eviction forgets its block, a dispatch leaves nothing pending, and a reset
  happens if and only if no block is held.

Only what may happen is checked, and not what must, of these: which free block is allocated, and the order in which
blocks wait; how many blocks are demoted, and which are pinned; which of several blocks that hold a content serves a
hit; how long a hit is; whether a request had to be rejected. The formulas themselves (``kvreference.geometry``,
``kvreference.retention``), which are proved, the requests' state (``kvreference.population``) and what distinguishes
one content from another (``kvreference.content``) are taken as they are: of a content, only its length is checked.
"""
