"""The guarantees, by their ids. An id is never given to another guarantee, and never changes.

``KV-INV`` hold in every state. ``KV-OP`` say what one operation does, ``KV-MEM`` what attention may rely on,
``KV-LEAK`` what must not remain, ``KV-LIVE`` that requests make progress, and ``KV-WORK`` what it may cost. ``KV-SYS``
say what any system must do at all. ``KV-TIER`` say what a second tier must do, to which a connector moves blocks and
from which it loads them.
"""

from __future__ import annotations

from types import MappingProxyType

_SENTENCES = {
    "KV-INV-01": "A block's reference count is the number of table entries that name it, also of tables that are freed "
    "late, and of pending copies that read it.",
    "KV-INV-02": "A block is in the free queue if and only if it has no holder and is not pinned.",
    "KV-INV-03": "The free queue holds no block twice, and its length is the number of blocks said to be free.",
    "KV-INV-04": "A request names no block twice.",
    "KV-INV-05": "The cached map and the blocks agree on what each block holds.",
    "KV-INV-06": "The null block is never free and never cached.",
    "KV-INV-07": "The pinned queue holds exactly the pinned blocks without a holder, each once, and a pinned block is "
    "cached.",
    "KV-INV-08": "Where scratch goes first, no cached block stands before a scratch one in the free queue.",
    "KV-INV-09": "Until a copy is dispatched, its source and its destination are held.",
    "KV-OP-01": "The hit length is the largest multiple of the alignment at which every block that a resume needs "
    "is cached in every group; neither it nor the look-ahead block after it, where there is one, reaches the "
    "request's last token, and one that ends inside a block has at least the minimum length.",
    "KV-OP-02": "A hit is served by the blocks that were registered first for its content.",
    "KV-OP-03": "A request whose hit may serve now passes the admission gate if and only if a bound on what its "
    "tokens so far hold at once fits into what is free or can be demoted; look-ahead slots are not counted.",
    "KV-OP-04": "An allocation whose hit may serve now is rejected if and only if it takes more blocks than are "
    "free or can be demoted.",
    "KV-OP-05": "New blocks come from the front of the free queue, group by group.",
    "KV-OP-06": "A block that no later token reads is released at the next allocation or when asked, later ones first.",
    "KV-OP-07": "A request that ends or is preempted releases all its blocks, group by group, tail first, unless a "
    "transfer, or a step in flight that another node's writes are not ordered with, holds them until it is over.",
    "KV-OP-08": "Without a retention interval, a full block of verified tokens that is still needed is cached once: "
    "when its last token is scheduled, at the next allocation if drafts filled it, or with its answer if that comes "
    "later.",
    "KV-OP-09": "Two blocks carry the same content identity if and only if group, whole token prefix and keys agree, "
    "and the token after it where a draft layer's hashes cover that.",
    "KV-OP-10": "A block that is allocated, or evicted by its id, is not cached any more.",
    "KV-OP-11": "A reset forgets all content if no block is held, and changes nothing otherwise.",
    "KV-OP-12": "Events report every block cached or forgotten, in order, with exactly the tokens of the blocks named.",
    "KV-OP-13": "Statistics count every look-up that may read the cache, in tokens, those of preempted requests apart.",
    "KV-OP-14": "With caching, the common prefix of a full group is the leading blocks that all with blocks hold.",
    "KV-OP-15": "With a retention interval, a block is cached only if a hit at an admitted boundary reads it, and "
    "as soon as the first such boundary is reached and it is full; what a session has passed over is not looked at "
    "again when its prompt grows.",
    "KV-OP-16": "As long as nothing cached was lost, and states are not kept at chunk ends only, a replay of a "
    "computed prompt that is not a session's hits the latest boundary that a replay can hit, unless that ends inside a "
    "block and is shorter than the minimum.",
    "KV-OP-17": "With scratch first, scratch that is released goes to the front of the free queue, and what is "
    "cached to its back; each release keeps its order.",
    "KV-OP-18": "Every admitted boundary that a request computes becomes an entry once per admission, where what a "
    "hit there must match ends inside a block; a block that is allocated has no entries.",
    "KV-OP-19": "A hit that ends inside a block is served by a copy of exactly the tokens before its end, into a "
    "block of the request's own.",
    "KV-OP-20": "What a step computes serves no hit by a state or a copy before the step was dispatched.",
    "KV-OP-21": "A window drop that is long enough pins what is cached of its anchor, the blocks that a hit at the "
    "last boundary within it reads; freeing a whole table pins all that is cached of it; and nothing else pins.",
    "KV-OP-22": "A pin outlives hits and the releases after them, and ends when its block is demoted or its content "
    "forgotten.",
    "KV-OP-23": "A gate that would reject first demotes the oldest pinned blocks that the request does not use, as "
    "many as are missing, if that is enough.",
    "KV-OP-24": "External tokens follow the hit, get blocks of their own once every hit is held, and are cached "
    "when they have arrived.",
    "KV-OP-25": "Blocks that another node reads or fills are held until the transfer is over.",
    "KV-OP-26": "A cached state is the one after its block's last token, and every draft in flight has a state of "
    "its own.",
    "KV-OP-27": "Where junctions are kept, the last boundary that full attention holds of a prompt, with all that must "
    "match after it, is an admitted boundary of the request if it hits less; once the request has computed these "
    "tokens, as long as nothing cached was lost, and states are not kept at chunk ends only, every request that shares "
    "them and has a later one hits at least there, unless that ends inside a block and is shorter than the minimum.",
    "KV-MEM-01": "All that a computed token reads is in its slot: the state of its own request's prefix.",
    "KV-MEM-02": "A step has a slot of its own for every token it computes or drafts.",
    "KV-MEM-03": "A worker writes each token to its own slot: in the block that its request's table names for it, at "
    "the token's place in that block, by the kernel's table as by the block manager's.",
    "KV-MEM-04": "Where another node may write out of turn, no block that a step in flight reads or writes is free, or "
    "loaded for another request.",
    "KV-LEAK-01": "Once no request is alive and no step is in flight, no block is held and nothing in the manager "
    "remembers a request.",
    "KV-LEAK-02": "Once no request is alive, no container of the manager is larger than what it holds accounts for.",
    "KV-LIVE-01": "An accepted request is admitted within a bound, and only a request that fits the empty pool to "
    "its end is accepted.",
    "KV-LIVE-02": "A running request gets a token within a bound.",
    "KV-LIVE-03": "Nothing spins: no sequence of steps returns to the same state without progress.",
    "KV-WORK-01": "A request offers each block and each boundary to the cache at most once per admission; "
    "a block that a failed load took back, again.",
    "KV-WORK-02": "A decode step that gains, frees and caches as many blocks as another takes the same hash, table, "
    "queue and map operations at any length of the context.",
    "KV-SYS-01": "No legal operation raises.",
    "KV-SYS-02": "A scheduler asks its block manager only for what is legal, and knows of every request what was "
    "done: its tokens, how many are computed, whether it runs.",
    "KV-SYS-03": "A step sends its worker exactly the requests that it computes, all of their blocks, from which token "
    "on, how many and which drafts, and all requests that ended, and stays within its limits.",
    "KV-SYS-04": "The same operations on a fresh system give the same answers and the same states.",
    "KV-SYS-05": "Every client gets each token that its requests were answered, and their ends with the reason, once "
    "each and in order.",
    "KV-SYS-06": "A step computes of each request that it serves as many tokens as are pending, drafts included, as "
    "far as its limits allow, and skips no running request while there is room.",
    "KV-TIER-01": "A load from a tier brings each block what its key names, to the place that its request has for it.",
    "KV-TIER-02": "No block of either tier is used for anything else before the jobs that read or write it have ended.",
    "KV-TIER-03": "What a tier reports as a hit brings every group all that the request then reads.",
    "KV-TIER-04": "What is stored in a tier is computed, holds for verified tokens, and is what its key names.",
    "KV-TIER-05": "Once no request is alive and every job has ended, neither tier is held, and the connector remembers "
    "no request and no job.",
    "KV-TIER-06": "While every job ends, every request makes progress.",
}

STATEMENTS = MappingProxyType(_SENTENCES)
"""Id to sentence."""
