"""Every GPU of a Slurm job through Ray, from Python, without a job spec and a script.

Needs Ray and submitit: `pip install '.[ray,submitit]'` in a checkout of slurmray.

    python native.py --nodes 2 --gpus-per-node 8    # on Slurm where there is one, else on this machine
    python native.py --cluster local                # on this machine
    python native.py --nodes 2 --image IMAGE        # in containers; without, Ray is that of this Python

The folder `runs` has to be on a file system that all nodes share; logs and results are in it.
"""

import argparse

from slurmray.native import RayExecutor


def table():
    """A row for each node: address, GPUs. Runs once, on the first node, with Ray up on all of them."""
    import ray  # here, so that it need not be installed where the job is submitted

    ray.init()
    look = ray.remote(lambda: (ray.util.get_node_ip_address(), len(ray.get_gpu_ids())))
    tasks = []
    for node in ray.nodes():
        there = {f"node:{node['NodeManagerAddress']}": 0.001}  # a resource that Ray gives to each node
        gpus = node["Resources"].get("GPU", 0)
        tasks.append(look.options(num_gpus=gpus, resources=there).remote())
    return sorted(ray.get(tasks))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus-per-node", type=int)
    parser.add_argument("--image")
    parser.add_argument(
        "--accelerator", default="auto", help="none: GPUs are declared only, as in a rehearsal"
    )
    parser.add_argument("--cluster", choices=["slurm", "local", "debug"])
    given = parser.parse_args()
    executor = RayExecutor(folder="runs", cluster=given.cluster)
    executor.update_parameters(nodes=given.nodes, gpus_per_node=given.gpus_per_node, timeout_min=10)
    if given.image:
        executor.update_parameters(container={"image": given.image, "accelerator": given.accelerator})
    job = executor.submit(table)
    print(f"job {job.job_id}, logs in {job.paths.folder}")
    for address, gpus in job.result():
        print(f"{address:40} {gpus} GPUs")


if __name__ == "__main__":
    main()
