"""The program that runs in the job: standard library only, and nothing of slurmray beside it.

Every rendered script carries this package as text. It runs on the Python of the nodes (3.6 or later) and of
the image.
"""
