"""Fields of `slurm`, for type checkers. docs/scripts/reference.py writes this file."""


class GroupFields:
    """Options of sbatch that a group may have."""

    account: str | None
    consolidate_segments: bool
    constraint: str | None
    contiguous: bool
    core_spec: str | None
    cores_per_socket: str | None
    cpu_freq: str | None
    cpus_per_gpu: str | None
    distribution: str | None
    exclude: str | None
    exclusive: bool | str
    extra_node_info: str | None
    gpu_bind: str | None
    gpu_freq: str | None
    gres_flags: str | None
    hint: str | None
    licenses: str | None
    mem: str | None
    mem_bind: str | None
    mem_per_cpu: str | None
    mem_per_gpu: str | None
    mem_update: str | None
    mincpus: str | None
    network: str | None
    nodefile: str | None
    nodelist: str | None
    oom_kill_step: bool | str
    overcommit: bool
    oversubscribe: bool
    partition: str | None
    prefer: str | None
    qos: str | None
    reservation: str | None
    resources: str | None
    resv_ports: bool | str
    runtime: str | None
    segment: str | None
    sockets_per_node: str | None
    spread_job: bool
    spread_segments: bool
    switches: str | None
    thread_spec: str | None
    threads_per_core: str | None
    tmp: str | None
    tres_bind: str | None
    use_min_nodes: bool


class SlurmFields(GroupFields):
    """Options of sbatch of the whole job."""

    acctg_freq: str | None
    array: str | None
    batch: str | None
    bb: str | None
    bbf: str | None
    begin: str | None
    cluster_constraint: str | None
    clusters: str | None
    comment: str | None
    deadline: str | None
    delay_boot: str | None
    dependency: str | None
    error: str | None
    get_user_env: bool | str
    gid: str | None
    hold: bool
    ignore_pbs: bool
    kill_on_invalid_dep: str | None
    mail_type: str | None
    mail_user: str | None
    mcs_label: str | None
    nice: bool | str
    output: str | None
    priority: str | None
    profile: str | None
    propagate: bool | str
    reboot: bool
    stepmgr: bool
    time: str | None
    time_min: str | None
    uid: str | None
    verbose: bool
    wait: bool
    wait_all_nodes: str | None
    wckey: str | None
