#!/bin/sh
# Prints about 8 GPUs in the format of nvidia-smi 580.159.04 (recorded with an H200).
for gpu in 0 1 2 3 4 5 6 7; do
	case $1 in
	--list-gpus) echo "GPU $gpu: NVIDIA H200 (UUID: GPU-$gpu)" ;;
	*utilization*)
		echo "GPU-$gpu, 97, 99824, 660.32, 1755, 61, 143771, 700.00, 0x0000000000000000, 0, 0, 16"
		;;
	*) echo "GPU-$gpu, $gpu, 0, 143771" ;;
	esac
done
