"""The container process of each node and what it starts: Ray, prepare steps, services, the trainer."""
