"""Ray: actors, resources, the object store, the GCS."""

from slurmray.diagnosis.entries import Message

_EXCEPTIONS = "Ray: python/ray/exceptions.py"
_LOGS = "Ray's logs, which ray.keep_logs keeps in the run directory,"

MESSAGES: tuple[Message, ...] = (
    # Resources and placement groups
    Message(
        "ray-no-node-fits",
        "No available node types can fulfill resource requests {'GPU': 9.0}*1.",
        "Ray: python/ray/autoscaler/v2/event_logger.py",
        r"No available node types can fulfill",
        "A task or placement group asks for resources that no node offers to Ray, and waits for ever.",
        "Compare the request in that line with the nodes: GPUs, CPUs and custom resources of each.",
    ),
    Message(
        "ray-placement-group-timeout",
        "RuntimeError: Failed to create placement group with 8 bundles (requiring 8.0 GPUs, 8.0 CPUs total) in "
        "180 seconds.",
        "SkyRL: skyrl_train/utils/utils.py; NeMo-RL: nemo_rl/distributed/virtual_cluster.py; Ray Tune",
        r"Failed to create placement group with \d+ bundles|Placement group creation timed out"
        r"|Cluster resources may be insufficient or cluster itself",
        "The nodes do not offer Ray the GPUs or CPUs that the trainer asks for, or other actors still have them.",
        "Compare the request with the nodes' GPUs and slurm.cpus_per_task: a bundle also needs its CPUs on the "
        "same node.",
    ),
    Message(
        "ray-node-affinity",
        "ray.exceptions.ActorUnschedulableError: The actor is not schedulable: The node specified via "
        "NodeAffinitySchedulingStrategy doesn't exist any more or is infeasible, and soft=False was specified.",
        "Ray: src/ray/raylet/scheduling",
        r"The node specified via NodeAffinitySchedulingStrategy doesn't exist any more",
        "A task or actor is bound to a node that has left Ray, or that lacks the resources.",
        "Look for the loss of a node before that line, or lower what the task asks for.",
    ),
    # Memory and disk
    Message(
        "ray-memory-monitor",
        "1 worker(s) were killed due to the node running low on memory.",
        "Ray: src/ray/raylet/node_manager.cc; of Ray 2.4x: github.com/PeterGriffinJin/Search-R1/issues/44",
        r"killed due to the node running low on memory"
        r"|[1-9]\d{0,9} Workers \(tasks / actors\) killed due to memory pressure",
        "Ray killed a task because its node had nearly no memory left.",
        "Raise slurm.mem, run fewer tasks at a time, or let each use less.",
    ),
    Message(
        "ray-object-store-full",
        "The local object store is full of objects that are still in scope and cannot be evicted.",
        "Ray: python/ray/exceptions.py",
        r"local object store is full of objects that are still in scope",
        "Ray's object store is full of objects that the trainer still refers to.",
        "Raise container.shm_size and slurm.mem, or pass smaller batches; `ray memory` lists the objects.",
    ),
    Message(
        "ray-disk-full",
        "The object cannot be created because the local object store is full and the local disk's utilization "
        "is over capacity (95% by default).",
        f"{_EXCEPTIONS}, OutOfDiskError",
        r"local disk's utilization is over capacity|OutOfDiskError: Local disk is full",
        "Ray spills objects to the node's disk, and that disk is full.",
        "Free space on it, or let ray.temp_dir name a local disk with more.",
        "disk",
    ),
    # Starting and connecting
    Message(
        "ray-version-mismatch",
        "RuntimeError: Version mismatch: The cluster was started with:",
        "Ray: python/ray/_private/utils.py, check_version_info",
        r"Version mismatch: The cluster was started with",
        "The trainer runs with another version of Ray or Python than the cluster.",
        "Start it with the Python of container.python, and not with another virtual environment, conda or `uv run`.",
    ),
    Message(
        "ray-token-missing",
        "Token authentication is enabled but Ray couldn't find an authentication token. Create a token file at "
        "~/.ray/auth_token, or store the token in any file and set RAY_AUTH_TOKEN_PATH to point to it, or set the "
        "RAY_AUTH_TOKEN environment variable.",
        "Ray 2.60: src/ray/rpc/authentication/authentication_token_loader.cc, and run",
        r"Token authentication is enabled but Ray couldn't find an authentication token"
        r"|Token authentication is enabled but no authentication token was found",
        "Ray asks for a token, and this process has none: it runs outside of the job's container, or has lost "
        "RAY_AUTH_TOKEN_PATH.",
        "Run it as the trainer, a prepare step or a service with needs_ray, or set ray.auth: none.",
    ),
    Message(
        "ray-token-refused",
        "ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken: Authentication token is missing or incorrect",
        "Ray 2.60, run",
        r"RPC error: InvalidAuthToken: |Unauthenticated: .{0,200}InvalidAuthToken",
        "The process has another token than the Ray cluster, or none: it is of another job, or its environment has the "
        "token of another cluster. Where ~/.ray/auth_token exists, which `ray.init()` of Ray 2.60 writes, `ray start --head` "
        "asks for that token, but `ray start --address` and `ray.init()` send none.",
        "Leave RAY_AUTH_TOKEN and RAY_AUTH_TOKEN_PATH out of env, and the trainer's address of Ray to slurmray: each job "
        "has a token of its own. For a `ray start` of your own set RAY_AUTH_MODE=token on all nodes and for the trainer.",
    ),
    Message(
        "ray-gpus-hidden",
        "ValueError: Attempting to start raylet with 2 GPU, but CUDA_VISIBLE_DEVICES contains [].",
        "Ray 2.60, run",
        r"Attempting to start raylet with \d+ \S{1,40}, but \S{1,60} contains \[",
        "Ray was to offer more GPUs than the variable in that line lets it see.",
        "Leave CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES out of env, setup and the image, or "
        "lower --num-gpus.",
    ),
    Message(
        "ray-session-of-another",
        "AssertionError: Session name session_2026-11-29_06-34-47_047000_12 does not match persisted value "
        "b'session_2026-11-29_06-30-01_011000_9'. Perhaps there was an error connecting to the GCS storage backend.",
        "Ray 2.60, run",
        r"Session name \S+ does not match persisted value",
        "Another Ray's gcs_server listens at that port: often it was left by a `ray start --head` that failed on this host "
        "before, which leaves gcs_server and the dashboard running.",
        "Let slurmray start Ray. Otherwise end that Ray, or choose another --port.",
    ),
    Message(
        "ray-gcs-never-reached",
        "RuntimeError: Failed to connect to GCS. Last connection error: Failed to connect to GCS at address "
        "10.0.0.1:6379 within 5 seconds.",
        "Ray 2.60: python/ray/_private/node.py, and run; after 20 tries, which take 14 minutes",
        r"Failed to connect to GCS\. Last connection error|Failed to connect to GCS\.  Last \d+ lines of error files",
        "The node could not reach Ray's head: it does not run there, its address is wrong (127.0.0.1 is another host's "
        "own), or a firewall is in the way.",
        "Look at the end of the head node's log. Set network.interface to the one that connects the nodes.",
        "network",
    ),
    Message(
        "ray-symmetric-run",
        "Error: Timed out waiting for other nodes to start.",
        "Ray 2.60, run, and scripts/symmetric_run.py; `Failed to start Ray` comes with exit code 0",
        r"Error: Timed out waiting for (?:other nodes|head node) to start\.|Failed to start Ray: Command .* returned non-zero exit status",
        "`ray symmetric-run` has not got its Ray cluster: `ray start` failed on this node, or others are missing or take "
        "longer than 30 s. The trainer has not run, although the exit code may be 0.",
        "Run the trainer itself, without `ray symmetric-run`: slurmray starts Ray on all nodes. The lines before it have the "
        "cause.",
        is_follow_up=True,
    ),
    Message(
        "ray-not-running",
        "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to by "
        "setting `--address` flag or `RAY_ADDRESS` environment variable.",
        "Ray: python/ray/_private/services.py",
        r"Could not find any running Ray instance",
        "The process looks for Ray where none runs, or before Ray has started.",
        "Leave RAY_ADDRESS as slurmray sets it. A prepare step or a service that uses Ray wants needs_ray: true.",
    ),
    Message(
        "ray-init-twice",
        "RuntimeError: Maybe you called ray.init twice by accident? This error can be suppressed by passing in "
        "'ignore_reinit_error=True' or by calling 'ray.shutdown()' prior to 'ray.init()'.",
        "Ray: python/ray/_private/worker.py",
        r"Maybe you called ray\.init twice by accident",
        "The trainer calls ray.init() although it is connected to Ray already.",
        "Remove one call, or pass ignore_reinit_error=True to the second.",
    ),
    Message(
        "ray-socket-path-too-long",
        "OSError: validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: "
        "/scratch/alice/jobs/ray/session_2026-11-26_10-31-05_664188_503911/sockets/plasma_store",
        "Ray: python/ray/_private/node.py",
        r"AF_UNIX path length cannot exceed",
        "The folder for Ray's sockets has too long a path.",
        "Set ray.temp_dir to a folder with at most 18 characters, and leave TMPDIR and RAY_TMPDIR out of env.",
    ),
    Message(
        "ray-node-start-timeout",
        "Exception: The current node timed out during startup. This could happen because some of the raylet "
        "failed to startup or the GCS has become overloaded.",
        "Ray: python/ray/_private/node.py",
        r"The current node timed out during startup",
        "Ray's processes start too slowly, often as they have too few CPUs, or one of them failed.",
        f"Raise slurm.cpus_per_task. {_LOGS} show in raylet.out and dashboard_agent.log whether one failed.",
        "node",
    ),
    Message(
        "ray-worker-cannot-register",
        "core_worker.cc:201: Failed to register worker 01000000ffffffff to Raylet. IOError: [RayletClient] "
        "Unable to register worker with raylet. No such file or directory",
        "Ray 2.60: src/ray/raylet_ipc_client/raylet_ipc_client.cc, before src/ray/raylet_client/raylet_client.cc",
        r"Unable to register worker with raylet|Failed to register worker to Raylet: ",
        "The node's raylet has ended or did not start: often too few CPUs, open files or processes for the "
        "number of workers.",
        f"Raise slurm.cpus_per_task and the limits that `ulimit -n` and `ulimit -u` show. {_LOGS} have the "
        "cause in raylet.out and raylet.err.",
    ),
    Message(
        "ray-workers-start-slowly",
        "(raylet) worker_pool.cc:589: Some workers of the worker process(12345) have not registered within the "
        "timeout. The process is dead, probably it crashed during start.",
        "Ray: src/ray/raylet/worker_pool.cc",
        r"Some workers of the worker process\S* have not registered within the timeout",
        "Ray's workers do not start in time: Python is on a slow shared file system, or crashes at once.",
        "Put the Python environment into the image or on a local disk, or set "
        "env.RAY_worker_register_timeout_seconds: 300.",
    ),
    Message(
        "ray-agent-died",
        "(raylet) agent_manager.cc:87: The raylet exited immediately because one Ray agent failed, agent_name = "
        "dashboard_agent.",
        "Ray: src/ray/raylet/agent_manager.cc",
        r"The raylet exited immediately because one Ray agent failed|failed and raylet fate-shares with it",
        "An agent process of Ray ended, and the raylet with it: a package of its Python does not fit, a port was "
        "taken, or memory ran out.",
        f"{_LOGS} have its traceback in dashboard_agent.log or runtime_env_agent.log.",
    ),
    Message(
        "ray-node-address",
        "RuntimeError: This node has an IP address of 10.17.4.16, and Ray expects this IP address to be either the "
        "GCS address or one of the Raylet addresses. Connected to GCS at 10.17.1.30 and found raylets at 10.17.1.30, "
        "10.17.7.7 but none of these match this node's IP 10.17.4.16.",
        "Ray 2.60: src/ray/gcs_rpc_client/global_state_accessor.cc, with other words; before: "
        "github.com/ray-project/ray/issues/35022",
        r"but none of these match this node's IP|, and found no Raylet with this IP address",
        "A process takes another address for its node's than the one with which Ray was started there.",
        "Set network.interface to the one that connects the nodes, and let the trainer pass no _node_ip_address.",
        "network",
    ),
    Message(
        "ray-addresses-not-unique",
        "RuntimeError: Every node should have a unique IP address. Got 2 nodes with node ids ['5ad7', '6b5f'] and 3 "
        "unique IP addresses {'10.0.0.1', '10.0.0.2', '172.17.0.1'}.",
        "vLLM before 0.33: vllm/executor/ray_distributed_executor.py, vllm/v1/executor/ray_executor.py",
        r"Every node should have a unique IP address",
        "vLLM found other addresses of the nodes than Ray has, e.g. of another network.",
        "Set network.interface to the one that connects the nodes, and leave VLLM_HOST_IP out of env.",
        "network",
    ),
    # Lost nodes and processes
    Message(
        "ray-check-failed",
        "[2025-07-06 07:14:27,052 C 2915798 2915798] task_receiver.cc:219:  Check failed: objects_valid",
        "Ray: src/ray/util/logging.h; github.com/verl-project/verl/issues/2380, "
        "github.com/NVIDIA-NeMo/RL/issues/1051",
        r" C \d+ \d+\] .*Check failed: ",
        "A check in Ray's own code failed, and the process ended: a defect of Ray, or a use that it does not expect, "
        "e.g. a process that forks after ray.init.",
        "Look for the words after `Check failed` in Ray's issues, and try another version of Ray.",
    ),
    Message(
        "ray-node-lost",
        "The node with node id: 5ad7fa5dd64fc1fe and address: 10.0.0.2 and node name: 10.0.0.2 has been marked "
        "dead because the detector has missed too many heartbeats from it.",
        "Ray 2.60: src/ray/gcs/gcs_node_manager.cc, gcs_health_check_manager.cc",
        r"node name: (?P<node>[^\s,]+) has been marked dead because the detector has missed too many heartbeats"
        r"|has been marked dead because the detector has missed too many heartbeats"
        r"|health check failed due to missing too many heartbeats",
        "Ray lost a node: its raylet was killed, often as memory ran out, its network failed, or it was too busy "
        "to answer.",
        "If `dmesg` there shows out of memory, raise slurm.mem. Leave a bad node out: sbatch --exclude=NODE generated.sh.",
        "node",
    ),
    Message(
        "ray-raylet-died",
        "ray.exceptions.LocalRayletDiedError: The task's local raylet died. Check raylet.out for more "
        "information.",
        f"{_EXCEPTIONS}, process_watcher.py and scripts.py, of Ray 2.60",
        r"The task's local raylet died|Raylet is terminated\. Termination is unexpected"
        r"|END raylet\.out tail \(exit code\(s\)=-",
        "The raylet of a node ended: often the kernel killed it as memory ran out.",
        f"If `dmesg` on the node shows out of memory, raise slurm.mem. {_LOGS} have raylet.out.",
        "node",
    ),
    Message(
        "ray-process-exited",
        "Some Ray subprocesses exited unexpectedly:",
        "Ray: python/ray/scripts/scripts.py, ray start --block",
        r"Some Ray subprocesses exited unexpectedly",
        "A process of Ray on the node ended, and the next line says which: often it was killed as memory ran out.",
        f"If `dmesg` on the node shows out of memory, raise slurm.mem. {_LOGS} have the output of that process.",
        "node",
    ),
    Message(
        "ray-gcs-lost",
        "[2026-11-26 10:31:05,798 E 177479 178526] gcs_rpc_client.h:554: Failed to connect to GCS within 60 "
        "seconds. GCS may have been killed.",
        "Ray 2.60: src/ray/gcs_rpc_client/rpc_client.h; github.com/ray-project/ray/issues/45570",
        r"GCS may have been killed",
        "Ray's GCS on the head node ended, or the network to it is cut.",
        "Look at the end of the head node's log. If `dmesg` there shows out of memory, raise slurm.mem.",
    ),
    Message(
        "ray-gcs-unreachable",
        "ray.exceptions.RpcError: Timed out while waiting for GCS to become available.",
        "Ray 2.60: src/ray/rpc/retryable_grpc_client.cc",
        r"RpcError: Timed out while waiting for GCS to become available",
        "A process does not reach Ray's GCS on the head node: it has ended, or the address or a firewall is in "
        "the way.",
        "Look at the end of the head node's log. Set network.interface to the one that connects the nodes.",
        "network",
    ),
    # The trainer's use of Ray
    Message(
        "ray-placement-group-name-taken",
        "ray.exceptions.RaySystemError: System error: Failed to create placement group 'd1c0110401ccaefbbf8fd4b69bfd' "
        "because name 'global_poolverl_group_8:0' already exists.",
        "github.com/PeterGriffinJin/Search-R1/issues/44",
        r"Failed to create placement group '\S+' because name '",
        "A placement group with that name lives already: of another call of the trainer in the same Ray cluster.",
        "Submit the job again for a new cluster, or let the trainer end its first call, which then frees the group.",
    ),
    Message(
        "ray-job-no-agent",
        "RuntimeError: Request failed with status code 500: No available agent to submit job, please try again later.",
        "Ray: python/ray/dashboard/modules/job/job_head.py; github.com/verl-project/verl/issues/768",
        r"No available agent to submit job",
        "Ray's dashboard agent, which starts jobs, does not run: it was not ready yet, its port is taken (52365 by "
        "default), or the limit of processes was reached.",
        f"Submit it again after some seconds, or start fewer processes. {_LOGS} have dashboard_agent.log.",
    ),
    Message(
        "ray-dashboard-unreachable",
        "ConnectionError: Failed to connect to Ray at address: http://127.0.0.1:8265.",
        "Ray: python/ray/dashboard/modules/dashboard_sdk.py; github.com/verl-project/verl/issues/87",
        r"Failed to connect to Ray at address: ",
        "Nothing answers at the address of Ray's dashboard: it does not run, is on another node, or has another port.",
        "Use the address that the job's log has for the dashboard, or let slurmray submit: launch: ray-job.",
    ),
    Message(
        "ray-module-missing",
        "ray.exceptions.RaySystemError: System error: No module named 'my_rewards'",
        "Ray: python/ray/_private/serialization.py",
        r"RaySystemError: System error: No module named",
        "A worker cannot load an object, as a Python module of the trainer is not on its path.",
        "Install the module in the image, or set env.PYTHONPATH to its folder, which all nodes must have.",
    ),
    Message(
        "ray-actor-name-taken",
        "ray.exceptions.ActorAlreadyExistsError: The name Trainer (namespace=None) is already taken. Please use "
        "a different name or get the existing actor using ray.get_actor('Trainer', namespace='None')",
        "Ray: python/ray/actor.py",
        r"Please use a different name or get the existing actor",
        "An actor with that name lives already: of a prepare step, or of another call of the trainer.",
        "Let the trainer use another name or namespace, or kill the first actor with ray.kill().",
    ),
    Message(
        "ray-not-serializable",
        "TypeError: Could not serialize the argument <unlocked _thread.lock object at 0x7f1acf9a1b10> for a task "
        "or actor main.Runner.step. Check https://docs.ray.io/en/master/ray-core/objects/serialization.html",
        "Ray: python/ray/_raylet.pyx",
        r"Could not serialize the argument .* for a task or actor",
        "An argument of a task or actor cannot be sent to another process, e.g. a lock, a file or a client.",
        "Create it inside of the actor instead. `ray.util.inspect_serializability` names the part.",
    ),
    Message(
        "ray-get-timeout",
        "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.",
        "Ray: src/ray/core_worker/store_provider/memory_store/memory_store.cc",
        r"Get timed out: some object\(s\) not ready",
        "A task or actor did not answer in the time that the trainer waits: it hangs, or waits for resources.",
        "Look for earlier messages of the actor; `ray status` shows what waits for resources.",
    ),
    Message(
        "ray-working-dir-too-large",
        "Failed to upload working_dir /home/alice/project to the Ray cluster: Package size (1765.45MiB) exceeds "
        "the maximum size of 512.00MiB.",
        "Ray: python/ray/_private/runtime_env/packaging.py",
        r"Package size \(\S+\) exceeds the maximum size of",
        "The folder of runtime_env's working_dir or py_modules is too large to be sent.",
        "Add data and checkpoints to `excludes` of runtime_env, or leave working_dir out: the submit folder is "
        "mounted.",
    ),
    # What follows from other failures
    Message(
        "ray-runtime-env",
        "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.",
        _EXCEPTIONS,
        r"Failed to set up runtime environment\.|Failed to setup runtime environment\.",
        "Ray could not prepare the runtime_env of a task or job; the lines below it say which part.",
        "Install the packages in the image or in container.setup instead of runtime_env's pip, conda or uv.",
        is_follow_up=True,
    ),
    Message(
        "ray-job-failed",
        "Status message: Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 "
        "chars):",
        "Ray: python/ray/dashboard/modules/job/job_supervisor.py",
        r"Job entrypoint command failed with exit code \d+",
        "The trainer, a job of Ray's job API, failed; its last lines follow.",
        "Look for its failure before that line.",
        is_follow_up=True,
    ),
    Message(
        "ray-exception-not-loaded",
        "ray.exceptions.RaySystemError: System error: Failed to unpickle serialized exception",
        _EXCEPTIONS,
        r"Failed to unpickle serialized exception|Failed to deserialize exception\. Refer to",
        "A task failed with an exception that cannot be loaded here.",
        "Look for the task's own traceback: before that line, with the worker's prefix, or after it.",
        is_follow_up=True,
    ),
    Message(
        "ray-worker-killed",
        "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error "
        "code 2. End of file.",
        "Ray: src/ray/raylet/node_manager.cc; github.com/verl-project/verl/issues/4921",
        r"Worker unexpectedly exits with a connection error code|The leased worker has unrecoverable failure",
        "A worker process died without an exception: the kernel killed it as memory ran out, or it crashed in "
        "compiled code.",
        "If `dmesg` on that node shows out of memory, raise slurm.mem. Set env.PYTHONFAULTHANDLER: 1 to get a "
        "Python traceback of a crash.",
        is_follow_up=True,
    ),
    Message(
        "ray-worker-crashed",
        "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task. Check "
        "python-core-worker-*.log files for more information.",
        _EXCEPTIONS,
        r"The worker died unexpectedly while executing this task",
        "The process of a task died without an exception: it was killed, or crashed in compiled code.",
        "If `dmesg` on that node shows out of memory, raise slurm.mem. Look for earlier messages of the process.",
        is_follow_up=True,
    ),
    Message(
        "ray-actor-owner-died",
        "The actor is dead because its owner has died. Owner Id: 05000000ffff Owner Ip address: 10.0.0.2 Owner "
        "worker exit type: SYSTEM_ERROR Worker exit detail: Owner's node has crashed.",
        "Ray 2.60: src/ray/gcs/actor/gcs_actor_manager.cc",
        r"The actor is dead because its owner has died",
        "The process that had created the actor ended, and Ray ended the actor with it.",
        "Look for what ended that process, on the node of `Owner Ip address`.",
        is_follow_up=True,
    ),
    Message(
        "ray-actor-node-died",
        "The actor died because its node has died. Node Id: 5ad7fa5dd64fc1fec7a82cceecabed8e5eb247ec",
        "Ray 2.60: src/ray/gcs/actor/gcs_actor_manager.cc",
        r"The actor died because its node has died(?P<node>)",
        "Ray lost the node of an actor; the next line says why.",
        "Look at the end of that node's log. Leave a bad node out: sbatch --exclude=NODE generated.sh.",
        "node",
        is_follow_up=True,
    ),
    Message(
        "ray-actor-unreferenced",
        "The actor is dead because all references to the actor were removed.",
        "Ray 2.60: src/ray/gcs/actor/gcs_actor_manager.cc",
        r"The actor is dead because all references to the actor were removed",
        "No process holds a handle of the actor any more, often as the one that had it failed.",
        "Look for the failure before, or keep the handle in a variable that lives as long as the actor.",
        is_follow_up=True,
    ),
    Message(
        "ray-placement-group-removed",
        "Worker exit type: INTENDED_SYSTEM_EXIT Worker exit detail: Destroying worker since its placement group "
        "was removed.",
        "Ray: src/ray/raylet/placement_group_resource_manager.cc, and python/ray/exceptions.py",
        r"since its placement group was removed|its associated placement group was removed"
        r"|The placement group corresponding to this \w+ has been removed",
        "The placement group of a task or actor was removed: by the trainer, or as the trainer failed.",
        "Look for the failure before.",
        is_follow_up=True,
    ),
    Message(
        "ray-actor-init-failed",
        "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, "
        "ray::ParameterSynchronizer.__init__() (pid=798168, ip=10.0.0.2)",
        _EXCEPTIONS,
        r"The actor died because of an error raised in its creation task",
        "An actor's __init__ failed; the traceback below it ends with the exception.",
        "Fix what that exception says.",
        is_follow_up=True,
    ),
    Message(
        "ray-actor-died",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        _EXCEPTIONS,
        r"The actor died unexpectedly before finishing this task",
        "The process or the node of an actor died; the lines below it say which, with its address.",
        "Look for the failure before, or at the end of that node's log.",
        is_follow_up=True,
    ),
    Message(
        "ray-actor-unavailable",
        "ray.exceptions.ActorUnavailableError: The actor 50edde67 is unavailable: The actor is temporarily "
        "unavailable: RpcError: RPC Error message: Socket closed.",
        _EXCEPTIONS,
        r"ActorUnavailableError: The actor \S+ is unavailable",
        "An actor does not answer: its process is about to die, or the network failed.",
        "Look for the failure before, or at the end of that node's log.",
        is_follow_up=True,
    ),
    Message(
        "ray-actor-not-found",
        "ValueError: Failed to look up actor with name 'explorer'. You are either trying to look up a named actor "
        "you didn't create, the named actor died, or the actor hasn't been created",
        "Ray: python/ray/_raylet.pyx",
        r"ValueError: Failed to look up actor with name",
        "A named actor does not exist: it died before, was not created, or is in another namespace.",
        "Look for the failure before.",
        is_follow_up=True,
    ),
    Message(
        "ray-object-lost",
        "All copies of 00ffffff have been lost due to node failure. Check cluster logs for more information.",
        f"{_EXCEPTIONS}, ObjectLostError",
        r"All copies of \S+ have been lost due to node failure",
        "The only nodes with an object have died.",
        "Look for the loss of a node before.",
        is_follow_up=True,
    ),
    Message(
        "ray-object-owner-died",
        "The object's owner has exited. This is the Python worker that first created the ObjectRef via "
        "`.remote()` or `ray.put()`.",
        f"{_EXCEPTIONS}, OwnerDiedError",
        r"The object's owner has exited",
        "The process that had created an object ended, and the object went with it.",
        "Look for what ended that process.",
        is_follow_up=True,
    ),
    Message(
        "ray-object-not-reconstructed",
        "The object cannot be reconstructed because it was created by an actor, ray.put() call, or its ObjectRef "
        "was created by a different worker.",
        f"{_EXCEPTIONS}, ObjectReconstructionFailedError",
        r"The object cannot be reconstructed because",
        "An object was lost with its node, and Ray cannot compute it again.",
        "Look for the loss of a node or process before.",
        is_follow_up=True,
    ),
)
