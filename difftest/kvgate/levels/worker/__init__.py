"""The level of a worker: a scheduler on its block manager, and the model runner that its steps are sent to."""
