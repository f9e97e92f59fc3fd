"""The guarantees, by their ids. An id is never given to another guarantee, and never changes.

``KV-INV`` hold in every state, ``KV-OP`` say what one operation does, ``KV-MEM`` what the attention may rely on,
``KV-LEAK`` what must not remain, ``KV-SYS`` what any system must do at all.
"""

from __future__ import annotations

from types import MappingProxyType

_SENTENCES = {
    "KV-INV-01": "A block's reference count is the number of table entries that name it.",
    "KV-INV-02": "A block is in the free queue exactly if nobody holds it.",
    "KV-INV-03": "The free queue holds no block twice, and its length is the number of blocks said to be free.",
    "KV-INV-04": "A request names no block twice.",
    "KV-INV-05": "The cached map and the blocks agree on what each block holds.",
    "KV-INV-06": "The null block is never free and never cached.",
    "KV-OP-01": "The hit length is the largest multiple of the alignment at which every block that a resume needs is "
    "cached in every group; neither it nor the look-ahead block behind it, where there is one, reaches the request's "
    "last token.",
    "KV-OP-02": "A hit is served by the blocks that were registered first for its content.",
    "KV-OP-03": "A request passes the admission gate exactly if a bound on what its tokens so far hold at once fits "
    "into what is free; look-ahead slots are not counted.",
    "KV-OP-04": "An allocation is refused exactly if it takes more blocks than are free.",
    "KV-OP-05": "New blocks come from the front of the free queue, group by group.",
    "KV-OP-06": "A block that no later token reads is released at the next allocation or when asked, later ones first.",
    "KV-OP-07": "A request that ends or is preempted releases all its blocks, group by group, tail first.",
    "KV-OP-08": "A full block of verified tokens that is still needed is cached once: when its last token is "
    "scheduled, or at the next allocation if drafts filled it.",
    "KV-OP-09": "Two blocks carry the same content identity exactly if group, whole token prefix and keys agree.",
    "KV-OP-10": "A block handed out, or evicted by its id, is cached no longer.",
    "KV-OP-11": "A reset forgets all content if nobody holds a block, and changes nothing otherwise.",
    "KV-OP-12": "Events tell every block cached or forgotten, in order, with exactly the tokens of the blocks named.",
    "KV-OP-13": "Statistics count every look-up that may read the cache, in tokens, those of preempted requests apart.",
    "KV-OP-14": "With caching, the common prefix of a full group is the leading blocks that all with blocks hold.",
    "KV-MEM-01": "Whatever a computed token reads is in its slot: the state of its own request's prefix.",
    "KV-MEM-02": "A step has a slot of its own for every token it computes or drafts.",
    "KV-LEAK-01": "Once no request is alive, no block is held and nothing in the manager remembers a request.",
    "KV-LEAK-02": "Once no request is alive, no container of the manager is larger than what it holds accounts for.",
    "KV-SYS-01": "No legal operation raises.",
}

STATEMENTS = MappingProxyType(_SENTENCES)
"""Id to sentence."""
