"""The program that runs in the job. It uses the standard library alone and imports nothing else of slurmray.

Every rendered script carries this package as text. It runs on the Python of the nodes (3.6 or later) and on
that of the image.
"""
