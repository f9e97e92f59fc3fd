"""What a block must hold: ghost contents, computed from a request's tokens and keys, never from vLLM's hashes.

Equal contents have equal numbers. A number stands for everything that goes into a block: LoRA adapter, cache salt, all
tokens up to its end, and the multimodal items among them with their offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary


class Contents:
    """The contents of the full blocks of requests, by block size; each is computed once."""

    def __init__(self) -> None:
        self._chains: WeakKeyDictionary[Any, tuple[int, dict[int, list[int]]]] = WeakKeyDictionary()
        """Per request the length of its prompt, and per block size what its first blocks hold."""

    def of(self, request: Any, block_size: int, blocks: int) -> Sequence[int] | None:
        """What the first ``blocks`` blocks of a request hold, as far as it has the tokens; None if nothing is known.

        The tokens of a request with prompt embeddings are not in the request.
        """
        if getattr(request, "prompt_embeds", None) is not None:
            return None
        try:
            prompt, chains = self._chains.get(request, (-1, {}))
        except TypeError:
            return None
        if prompt != request.num_prompt_tokens:
            # A request of a session: its next prompt replaces tokens.
            chains = {}
            self._chains[request] = request.num_prompt_tokens, chains
        chain = chains.setdefault(block_size, [])
        tokens = request._all_token_ids
        wanted = min(blocks, len(tokens) // block_size)
        if len(chain) < wanted:
            self._extend(chain, request, tokens, block_size, wanted)
        return chain[:wanted]

    @staticmethod
    def _extend(chain: list[int], request: Any, tokens: Sequence[int], size: int, blocks: int) -> None:
        adapter = request.lora_request.lora_name if request.lora_request else None
        before = chain[-1] if chain else hash((adapter, request.cache_salt or None))
        items = [(each.identifier, each.mm_position.offset, each.mm_position.length) for each in request.mm_features]
        for block in range(len(chain), blocks):
            start, end = block * size, (block + 1) * size
            within = tuple(item[:2] for item in items if item[1] < end and start < item[1] + item[2])
            before = hash((before, tuple(tokens[start:end]), within))
            chain.append(before)
