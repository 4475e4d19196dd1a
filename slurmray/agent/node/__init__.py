"""The node agent: the task on each node, outside the container."""
