#!/bin/bash
# The trainer of bench.recovery. Prints its first line, and in its first start then the time until it is stopped.
echo "trainer began $EPOCHREALTIME"
((SLURMRAY_ATTEMPT)) || while sleep 0.1; do echo "trainer runs $EPOCHREALTIME"; done
