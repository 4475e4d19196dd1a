"""What runs inside the container of each node: Ray, prepare steps, services, the trainer."""
