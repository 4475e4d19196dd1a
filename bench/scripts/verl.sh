#!/bin/bash
#SBATCH --job-name=verl
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-node=8
#SBATCH --time=10
# The steps of verl's Slurm script (verl.readthedocs.io, "Multinode Training") with Podman: detached containers,
# Ray started in them one node after the other with fixed sleeps, a test, the trainer. Left out: pull and build
# (the image is already there), devices, data and model. Added: --overlap, without which the second step never starts, and RAY_AUTH_MODE.
set -eu
container=verl
export NCCL_DEBUG=WARN TOKENIZERS_PARALLELISM=false CUDA_DEVICE_MAX_CONNECTIONS=1

srun --overlap bash -c "
	set -e
	podman image prune -f
	podman images --format '{{.Repository}}:{{.Tag}}' | grep -q '$IMAGE'
	podman rm $container 2>/dev/null || true
	podman run --rm -d -e RAY_AUTH_MODE=disabled -e HYDRA_FULL_ERROR=1 -e NCCL_DEBUG -e TOKENIZERS_PARALLELISM -e CUDA_DEVICE_MAX_CONNECTIONS \
		--network host --cap-add SYS_PTRACE --security-opt seccomp=unconfined --shm-size 8g \
		-v '$PWD:$PWD' -w '$PWD' --name $container '$IMAGE' tail -f /dev/null
"

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
address=$(srun --overlap --nodes=1 --ntasks=1 -w "${nodes[0]}" hostname --ip-address)
address=${address%% *}

srun --overlap --nodes=1 --ntasks=1 -w "${nodes[0]}" podman exec "$container" \
	ray start --head --node-ip-address="$address" --port=6379 --dashboard-port=8266 \
	--num-cpus "$SLURM_CPUS_PER_TASK" --num-gpus "$SLURM_GPUS_PER_NODE" --block &
sleep 10
for node in "${nodes[@]:1}"; do
	srun --overlap --nodes=1 --ntasks=1 -w "$node" podman exec "$container" \
		ray start --address "$address:6379" \
		--num-cpus "$SLURM_CPUS_PER_TASK" --num-gpus "$SLURM_GPUS_PER_NODE" --block &
	sleep 5
done

podman exec "$container" python3 -c '
import ray
ray.init(address="auto")
print("nodes:", len(ray.nodes()))
for node in ray.nodes():
    print(node["NodeManagerHostname"], node["Alive"])
ray.shutdown()
'
srun --overlap --nodes=1 --ntasks=1 -w "${nodes[0]}" podman exec "$container" python3 trainer.py "$SLURM_NNODES"
