"""Token equality: what a real engine answers with a feature of the cache, next to what it answers without a cache."""
