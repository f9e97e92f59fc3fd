"""LMCache 0.5.6: not a vLLM, but a second tier; its manager of memory on the host is run."""

from __future__ import annotations

from kvgate.adapters.releases.description import Published

RELEASE = Published(
    version="0.5.6",
    wheels={
        "cp310 x86_64": "2aeb486c882a71f3ed39f2ada181c3b740abcdfbd464fbc9c9d35911ebc179cb",
        "cp310 aarch64": "4c2dda875bd088163afcdcf3f4209018661387362db8643ceeec19aa978969ac",
        "cp311 x86_64": "14530ff72b96056e894c9b8dc70c10d019e7802799bbfde9cec298700b799194",
        "cp311 aarch64": "e552ed83481a3b0de390713ebfcee90344f72e42bb819cfed2391903e5f55165",
        "cp312 x86_64": "c7892944ca91ec965c3448b2e30e0869f86a2499bdd01b70eb988e3436d71e4e",
        "cp312 aarch64": "e6c4933025e78c8689ce4aef1e4585836d6357d6efd4cbf894bc59d2b6bd8006",
        "cp313 x86_64": "28eebbe02288a95963b8e4530543c985169b9bd55c41b49547d840575f589da0",
        "cp313 aarch64": "9ee1bcb0401eaa13d38be7aa5b528b64a6832503fe4b522e66577b5570efe1cd",
    },
    system="lmcache",
    distribution="lmcache",
    package="lmcache",
    cache_folder="lmcache",
    compiled=("lmcache/lmcache_native.",),
    findings=frozenset(("110-lmcache-ignores-salts", "111-lmcache-asserts-that-a-preempted-request-hits")),
)
