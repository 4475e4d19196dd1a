"""The process of the batch script, which starts the node agents and decides what happens next."""
