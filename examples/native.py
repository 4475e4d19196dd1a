"""Uses all GPUs of a Slurm job through Ray, from Python, without a job spec.

Needs Ray and submitit: `pip install '.[ray,submitit]'` in a checkout of slurmray.

    python native.py --nodes 2 --gpus-per-node 8    # on Slurm, or on this machine if it has no sbatch
    python native.py --cluster local                # on this machine
    python native.py --nodes 2 --image IMAGE        # in containers; default: the Ray of this Python

Logs and results go to the folder `runs`, which must be on a file system that all nodes share.
"""

import argparse

from slurmray.native import RayExecutor


def table():
    """(address, GPUs) of each node. Runs once, on the first node, when Ray runs on all nodes."""
    import ray  # imported here, because the submitting machine may not have it

    ray.init()
    look = ray.remote(lambda: (ray.util.get_node_ip_address(), len(ray.get_gpu_ids())))
    tasks = []
    for node in ray.nodes():
        there = {f"node:{node['NodeManagerAddress']}": 0.001}  # Ray's resource for exactly this node
        gpus = node["Resources"].get("GPU", 0)
        tasks.append(look.options(num_gpus=gpus, resources=there).remote())
    return sorted(ray.get(tasks))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus-per-node", type=int)
    parser.add_argument("--image")
    parser.add_argument(
        "--accelerator", default="auto", help="none: GPUs are only declared, e.g. in a rehearsal"
    )
    parser.add_argument("--cluster", choices=["slurm", "local", "debug"])
    args = parser.parse_args()
    executor = RayExecutor(folder="runs", cluster=args.cluster)
    executor.update_parameters(nodes=args.nodes, gpus_per_node=args.gpus_per_node, timeout_min=10)
    if args.image:
        executor.update_parameters(container={"image": args.image, "accelerator": args.accelerator})
    job = executor.submit(table)
    print(f"job {job.job_id}, logs in {job.paths.folder}")
    for address, gpus in job.result():
        print(f"{address:40} {gpus} GPUs")


if __name__ == "__main__":
    main()
