"""From a YAML file and flags to a job spec, or to everything that is wrong with them."""
