"""Slurm: limits, steps, signals, lost nodes."""

from slurmray.diagnosis.entries import Message

_STEPD = "Slurm: src/slurmd/slurmstepd/req.c"
_ERRNO = "Slurm: src/srun/launch.c and src/common/slurm_errno.c"
_UNREACHABLE = (
    "(Communication |Connection |Socket timed out|Message |Zero Bytes |No route |Can't find an address)"
)
_TASKS = "Slurm: src/srun/launch.c, before that in src/plugins/launch/slurm"

MESSAGES: tuple[Message, ...] = (
    # Limits
    Message(
        "slurm-oom-kill",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "Slurm: src/slurmd/slurmstepd/mgr.c, and srun; slurmray, in a node's log, by the step's cgroup",
        r"Detected \d+ oom.kill event\S* in |tasks? \S+ Out Of Memory|slurmray: memory ran out: the kernel killed \d+",
        "The job used more memory than slurm.mem, and the kernel killed a process.",
        "Raise slurm.mem, or let the trainer use less.",
    ),
    Message(
        "slurm-memory-limit",
        "slurmstepd: error: StepId=39.batch exceeded memory limit (6526939136 > 4294967296), being killed",
        "Slurm: src/interfaces/jobacct_gather.c",
        r"exceeded memory limit \(\d+ > \d+\), being killed|Exceeded (?:job|step) memory limit",
        "Slurm's accounting saw more memory in use than slurm.mem, and killed the step.",
        "Raise slurm.mem, or let the trainer use less.",
    ),
    Message(
        "slurm-time-limit",
        "slurmstepd: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-26T10:31:05 DUE TO TIME LIMIT ***",
        _STEPD,
        r"CANCELLED AT \S+ DUE TO TIME LIMIT",
        "The job reached its time limit: slurm.time is too short, or the trainer hangs.",
        "Raise slurm.time. stop.lead is the time in which the trainer can write a checkpoint before that.",
    ),
    Message(
        "slurm-preempted",
        "slurmstepd: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-26T10:31:05 DUE TO PREEMPTION ***",
        _STEPD,
        r"CANCELLED AT \S+ DUE TO PREEMPTION",
        "A job with precedence took the nodes.",
        "Let requeue.max restart the job, and the trainer resume from its checkpoint.",
    ),
    # Lost nodes
    Message(
        "slurm-node-failure",
        "slurmstepd: error: *** JOB 7 ON node1 CANCELLED AT 2026-11-26T10:31:05 DUE TO NODE FAILURE, SEE "
        "SLURMCTLD LOG FOR DETAILS ***",
        f"{_STEPD}, and src/srun/allocate.c",
        r"CANCELLED AT \S+ DUE TO NODE FAILURE|srun: error: Node failure on (?P<node>[^\s:]+)",
        "Slurm lost a node of the job: its slurmd did not answer, as the host lost power or its network.",
        "Submit the job again, without the node: sbatch --exclude=NODE generated.sh. requeue.max restarts such jobs.",
        "node",
    ),
    Message(
        "slurm-io-lost",
        "srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node 1",
        "Slurm: src/api/step_launch.c",
        r"io error with slurmstepd on node(?P<node>)|Aborting, io error and missing step on node",
        "srun lost the connection to a node: the host or its network failed, or slurmstepd was killed.",
        "Submit the job again. If it happens again, leave that node out: sbatch --exclude=NODE generated.sh.",
        "node",
    ),
    # Steps that do not start
    Message(
        "slurm-step-gres",
        "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification",
        _ERRNO,
        r"Unable to create step for job \d+: Invalid generic resource",
        "The step asks for other GPUs than the job has. Slurm 22.05 also prints it for a requeued job that got "
        "other nodes.",
        "If this was a requeue, submit the job again. Otherwise make container.step_args and slurm.extra fit "
        "slurm.gpus_per_node.",
    ),
    Message(
        "slurm-step-memory",
        "srun: error: Unable to create step for job 7: Memory required by task is not available",
        f"{_ERRNO}; github.com/eth-cscs/DLA-Future/issues/337",
        r"Unable to create step for job \d+: Memory required by task is not available",
        "The step asks for more memory than the job has left: another step has it, or the job asked for little.",
        "Raise slurm.mem. In your own srun use --overlap and --mem=0.",
    ),
    Message(
        "slurm-step-cpus",
        "srun: error: Unable to create step for job 7: More processors requested than permitted",
        f"{_ERRNO}; github.com/E3SM-Project/scream/issues/2112",
        r"Unable to create step for job \d+: More processors requested than permitted",
        "The step asks for more CPUs than the job has on its nodes.",
        "Raise slurm.cpus_per_task, or ask for fewer in your own srun.",
    ),
    Message(
        "slurm-step-busy",
        "srun: error: Unable to create step for job 7: Requested nodes are busy",
        _ERRNO,
        r"Unable to create step for job \d+: Requested nodes are busy",
        "Another step of the job has the CPUs, the memory or the GPUs.",
        "In your own srun use --overlap.",
    ),
    Message(
        "slurm-step-ended",
        "srun: error: Unable to create step for job 7: Job/step already completing or completed",
        _ERRNO,
        r"Job/step already completing or completed",
        "The job was ending already when the step was to start.",
        "Look for what ended the job before.",
        is_follow_up=True,
    ),
    Message(
        "slurm-step-refused",
        "srun: error: Unable to create step for job 7: Requested node configuration is not available",
        _ERRNO,
        r"Unable to create step for job \d+: "
        r"(?!Invalid generic|Memory req|More proc|Requested nodes are|Job/step|Protocol auth)",
        "Slurm refused to start a step of the job, for the reason in that line.",
        "Try without container.step_args and slurm.extra, and submit the job again.",
    ),
    Message(
        "slurm-no-allocation",
        "srun: error: Unable to confirm allocation for job 7: Invalid job id specified",
        "Slurm: src/srun/allocate.c",
        r"Unable to confirm allocation for job \d+: (Invalid job id|Job/step already)|(?i:slurm) job \d+ has expired",
        "srun ran for a job that has ended, or with SLURM_JOB_ID of another job or cluster.",
        "Leave SLURM_ variables out of env and of the submitter's environment, and submit the job again.",
    ),
    Message(
        "slurm-munge",
        'srun: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory',
        "Slurm: src/plugins/auth/munge/auth_munge.c; github.com/geoschem/GCHP/issues/254, "
        "github.com/LilyDaytoy/OpenPVSG/issues/17",
        r"Munge encode failed: (?!.*\(retrying)|Munge decode failed: (?!.*\(retrying)|: Protocol authentication error",
        "MUNGE, which proves to Slurm who sends a message, failed: munged does not run there, its key or clock differs, "
        "or the command is of another installation of Slurm (a module, Spack, conda).",
        "Let `which srun` be the site's own. If it is: sbatch --exclude=NODE generated.sh; the node's administrators must "
        "check munged.",
        "node",
    ),
    Message(
        "slurm-memory-variables",
        "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.",
        "Slurm: src/common/slurm_opt.c; github.com/mehta-lab/recOrder/issues/482",
        r"SLURM_MEM_PER_NODE are mutually exclusive",
        "The environment has two of these variables: one of this job, and one of the shell or job that it was submitted "
        "from.",
        "Submit from a shell outside of any job, or unset SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU and SLURM_MEM_PER_NODE "
        "there.",
    ),
    Message(
        "slurm-cpu-variables",
        "srun: fatal: cpus-per-task set by two different environment variables SLURM_CPUS_PER_TASK=13 != "
        "SLURM_TRES_PER_TASK=cpu=8",
        "Slurm since 23.11: src/common/slurm_opt.c; github.com/FairRootGroup/DDS/issues/490",
        r"cpus.per.task set by two different environment variables",
        "The environment has one of these variables of this job, and one of the shell or job that it was submitted "
        "from. Or Slurm gave the job more CPUs than asked for, as it asks for much memory per CPU.",
        "Submit from a shell outside of any job, or unset SLURM_CPUS_PER_TASK and SLURM_TRES_PER_TASK there. Otherwise "
        "raise slurm.cpus_per_task to the first number in that line.",
    ),
    Message(
        "slurm-gpu-variables",
        "srun: fatal: gpus-per-task set by two different environment variables SLURM_GPUS_PER_TASK=2 != "
        "SLURM_TRES_PER_TASK=cpu=1",
        "Slurm 24.11.5, run; the second one 26.05.5",
        r"gpus.per.task set by two different environment variables"
        r"|srun: fatal: --gpus-per-node and --gres=gpu are mutually exclusive",
        "srun has two requests for GPUs: an option or a variable of yours, and a variable that sbatch has set for the "
        "job. From 26.05 on, SLURM_GPUS_PER_NODE of the job excludes --gres=gpu of a step.",
        "In your own srun write --gpus-per-node as the job has it, in place of --gres=gpu. Unset SLURM_GPUS_PER_TASK if it "
        "is yours.",
    ),
    Message(
        "slurm-credential-expired",
        "srun: error: Task launch for StepId=989.0 failed on node node2: Job credential expired",
        f"{_ERRNO}, ESLURMD_CREDENTIAL_EXPIRED",
        r"Task launch for \S+ failed on node (?P<node>[^\s:]+): Job credential expired",
        "The clock of a node differs from the controller's, or the controller was too busy.",
        "Compare `date` on both. Leave that node out: sbatch --exclude=NODE generated.sh.",
        "node",
    ),
    Message(
        "slurm-cpu-binding",
        "srun: error: Task launch for StepId=7935525.0 failed on node node7: Unable to satisfy cpu bind request",
        f"{_ERRNO}; github.com/Emmi-AI/noether/pull/233, "
        "github.com/snakemake/snakemake-executor-plugin-slurm/issues/225",
        r"Unable to satisfy cpu bind request|Unable to layout tasks on given cpus"
        r"|CPU binding outside of job step allocation",
        "The step was to be bound to CPUs that it does not have, e.g. by SLURM_CPU_BIND of the shell it was "
        "submitted from.",
        "Submit from a shell outside of any job, or unset SLURM_CPU_BIND there. In your own srun use "
        "--cpu-bind=none.",
    ),
    Message(
        "slurm-launch-failed",
        "srun: error: Task launch for StepId=7.0 failed on node node2: Communication connection failure",
        f"{_ERRNO}; github.com/geopm/geopm/issues/1020",
        rf"Task launch for \S+ failed on node (?P<node>[^\s:]+): {_UNREACHABLE}",
        "srun does not reach slurmd of a node: the host is down, or a firewall or name resolution is in the way.",
        "Submit the job again. If it happens again, leave that node out: sbatch --exclude=NODE generated.sh.",
        "node",
    ),
    Message(
        "slurm-task-not-launched",
        "srun: error: task 0 launch failed: Plugin initialization failed",
        "Slurm: src/api/step_launch.c and src/srun/launch.c; github.com/NVIDIA/pyxis/issues/4, "
        "github.com/mknoxnv/ubuntu-slurm/issues/4",
        r"srun: error: task \d+ launch failed: "
        r"|Task launch for \S+ failed on node (?P<node>[^\s:]+): "
        rf"(?!Job credential expired|Protocol auth|Unable to satisfy|Unable to layout|{_UNREACHABLE})",
        "slurmd of a node did not start the task, for the reason in that line, e.g. as the site's prolog failed there.",
        "Leave that node out: sbatch --exclude=NODE generated.sh. Its administrators find more in slurmd's log.",
        "node",
    ),
    Message(
        "slurm-program-missing",
        "slurmstepd: error: execve(): /home/alice/train.sh: No such file or directory",
        "Slurm: src/slurmd/slurmstepd/task.c",
        r": error: execve\(\): .*: (No such file or directory|Permission denied)",
        "The program of the step does not exist on the node, is not executable, or its first line names no "
        "program.",
        "Use a path that all nodes share, and make it executable with chmod +x.",
    ),
    Message(
        "slurm-output-file",
        "slurmstepd: error: Could not open stdout file /home/alice/logs/7.out: No such file or directory",
        "Slurm: src/slurmd/slurmstepd/io.c",
        r"Could not open std(out|err) file",
        "The folder of slurm.output or slurm.error does not exist on the node (from 24.11 on Slurm creates it, if "
        "you may), or you may not write there.",
        "Create that folder, on a file system that all nodes share, and submit again.",
    ),
    # Tasks
    Message(
        "slurm-task-bus-error",
        "srun: error: node1: task 0: Bus error",
        _TASKS,
        r"srun: error: \S+ tasks? \S+ Bus error",
        "Often /dev/shm was full; otherwise a file that a process had mapped became shorter.",
        "Raise container.shm_size.",
    ),
    Message(
        "slurm-task-crashed",
        "srun: error: node1: task 0: Segmentation fault (core dumped)",
        _TASKS,
        r"srun: error: \S+ tasks? \S+ (Segmentation fault|Aborted|Illegal instruction|Floating point exception)",
        "A process of the step crashed in compiled code.",
        "Read its last lines. Set env.PYTHONFAULTHANDLER: 1 to get a Python traceback.",
    ),
    Message(
        "slurm-task-killed",
        "srun: error: node1: task 0: Killed",
        _TASKS,
        r"srun: error: \S+ tasks? \S+ (Killed|Terminated)",
        "A process of the step got a signal: as memory ran out, as another task had failed, or as the job ended.",
        "Look for the failure before. If `dmesg` on the node shows out of memory, raise slurm.mem.",
        is_follow_up=True,
    ),
    Message(
        "slurm-task-exited",
        "srun: error: node1: task 0: Exited with exit code 1",
        _TASKS,
        r"srun: error: \S+ tasks? \S+ Exited with exit code \d+",
        "A process of the step failed.",
        "Look for its failure before that line.",
        is_follow_up=True,
    ),
    Message(
        "slurm-step-cancelled",
        "slurmstepd: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-26T10:31:05 ***",
        _STEPD,
        r"(JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ (DUE TO JOB REQUEUE |DUE to SIGNAL \S+ )?\*\*\*",
        "The job or step was cancelled: by scancel, by a requeue, or by srun, as another task had failed.",
        "Look for the failure before; `sacct -j JOBID` shows who cancelled the job.",
        is_follow_up=True,
    ),
    Message(
        "slurm-spank-plugin",
        "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1",
        "Slurm: src/common/plugstack.c, now src/common/spank.c; github.com/NVIDIA/pyxis/issues/144",
        r"spank: required plugin \S+ \S+ failed with rc=",
        "A plugin of Slurm's on the node failed, e.g. pyxis, which starts the container; the lines before say why.",
        "Look for the failure before.",
        "node",
        is_follow_up=True,
    ),
    Message(
        "slurm-step-not-ended",
        "srun: error: Timed out waiting for job step to complete",
        "Slurm: src/api/step_launch.c",
        r"srun: error: Timed out waiting for job step to complete",
        "A step did not end in time after it had failed or was cancelled, often as a process hangs in the kernel.",
        "Look for the failure before.",
        is_follow_up=True,
    ),
)
