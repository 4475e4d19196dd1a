"""Container images and root file systems for the hosts of a rehearsal, built once and cached."""
