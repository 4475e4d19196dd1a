#!/bin/bash
# The trainer of bench.scale. Prints its first line, and sleeps while the CPU time until then is read.
echo "trainer began $EPOCHREALTIME"
sleep 0.5
