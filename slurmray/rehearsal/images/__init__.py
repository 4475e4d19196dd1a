"""Container images and root filesystems for the hosts of a rehearsal, built once and cached."""
