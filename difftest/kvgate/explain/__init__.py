"""What a model and its serving flags allow a prefix cache to hit, before anything is started."""
