"""The controller: the process of the batch script, which starts the node agents and ends the job."""
