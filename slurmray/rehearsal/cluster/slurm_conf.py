"""Configuration of a rehearsal's Slurm: nodes, users and the files in /etc. Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Literal, NamedTuple

Addresses = Literal["v4", "v6", "v6-first", "both"]

LOGIN = "login"
IMAGES = "/var/lib/rehearsal-images"  # the image store that all hosts share, read-only
ROOTLESS = "/var/lib/rehearsal-rootless"  # the image stores of ordinary users
_V4 = IPv4Network("10.77.0.0/16")
_V6 = IPv6Network("fd77::/64")
GATEWAY_V4 = f"{_V4[-2]}/16"
GATEWAY_V6 = f"{_V6[-2]}/64"


class Gres(NamedTuple):
    """A generic resource of each node, for example 8 GPUs of type h100. type: "" for none."""

    name: str
    type: str
    number: int


class User(NamedTuple):
    """An ordinary user on the hosts. sub: first of the user's 65,536 subordinate ids."""

    name: str
    uid: int
    sub: int

    @property
    def home(self) -> str:
        """The home folder, shared by the hosts."""
        return f"/home/{self.name}"


USERS = (User("alice", 1001, 200_000), User("bob", 1002, 300_000))


@dataclass(frozen=True)
class ClusterConfig:
    """The nodes of a rehearsal, which are all alike, and Slurm's options."""

    nodes: tuple[str, ...] = ("node1", "node2")
    absent: tuple[str, ...] = ()  # nodes that Slurm knows but that do not exist, for jobs that exclude them
    cpus: int = 4  # like memory and gres it is only declared: the machine may have less
    memory: int = 1_000_000  # MiB per node
    gres: tuple[Gres, ...] = ()
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ("batch",)
    addresses: Addresses = "v4"  # families of the hosts; with both, the one that names resolve to first
    options: Mapping[str, str] = field(default_factory=dict)  # of slurm.conf, for example {"KillWait": "5"}
    topology: str = ""  # topology.conf, for the TopologyPlugin in options
    # cgroups (v1) limit jobs to their CPUs and memory; the machine must have these CPUs.
    confined: bool = False
    private_tmp: bool = False  # each job has its own /tmp and /dev/shm (job_container/tmpfs)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The login host, which runs slurmctld, and the nodes."""
        return (LOGIN, *self.nodes)


def addresses(cluster: ClusterConfig, host: str) -> list[str]:
    """Return a host's addresses, in the order in which its name resolves to them."""
    index = cluster.hosts.index(host) + 1
    v4, v6 = str(_V4[index]), str(_V6[index])
    return {"v4": [v4], "v6": [v6], "v6-first": [v6, v4], "both": [v4, v6]}[cluster.addresses]


def slurm_conf(cluster: ClusterConfig) -> str:
    """Return slurm.conf, for Slurm 22.05 to 26.05, with the usual choices of sites where they matter to jobs.

    With CR_Core_Memory a step without --overlap hangs, as on real clusters; CR_CPU would hide that.
    MinJobAge keeps finished jobs in `scontrol show job`, because there is no accounting database.
    """
    nets = {"v4": "", "v6": "EnableIPv6,DisableIPv4"}.get(cluster.addresses, "EnableIPv6")
    settings = {
        "ClusterName": "rehearsal",
        "SlurmctldHost": LOGIN,
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "StateSaveLocation": "/var/spool/slurmctld",
        "SlurmdSpoolDir": "/var/spool/slurmd",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd.pid",
        "SlurmctldLogFile": "/var/log/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurmd.log",
        "ProctrackType": "proctrack/cgroup" if cluster.confined else "proctrack/linuxproc",
        "TaskPlugin": "task/cgroup" if cluster.confined else "task/none",
        "TaskProlog": "/etc/slurm/task_prolog",
        "MpiDefault": "none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=2,bf_interval=1",
        "SlurmdParameters": "config_overrides",
        "ReturnToService": "2",
        "MinJobAge": "100000",
        "KillWait": "30",
        "MailProg": "/bin/true",
    }
    if nets:
        settings["CommunicationParameters"] = nets
    if cluster.gres:
        settings["GresTypes"] = ",".join(dict.fromkeys(gres.name for gres in cluster.gres))
    if cluster.private_tmp:
        settings |= {"JobContainerType": "job_container/tmpfs", "PrologFlags": "Contain"}
    settings |= cluster.options
    lines = [f"{name}={value}" for name, value in settings.items()]
    common = f"CPUs={cluster.cpus} RealMemory={cluster.memory} TmpDisk=1000000 State=UNKNOWN"
    if cluster.gres:
        common += " Gres=" + ",".join(":".join(filter(None, map(str, gres))) for gres in cluster.gres)
    if cluster.features:
        common += " Feature=" + ",".join(cluster.features)
    lines += [f"NodeName={node} {common}" for node in cluster.nodes]
    lines += [f"NodeName={node} NodeAddr=localhost State=DOWN" for node in cluster.absent]
    nodes = ",".join((*cluster.nodes, *cluster.absent))
    for index, partition in enumerate(cluster.partitions):
        default = "YES" if index == 0 else "NO"
        lines.append(f"PartitionName={partition} Nodes={nodes} Default={default} MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def gres_devices(cluster: ClusterConfig) -> list[str]:
    """Return the device files of the declared GPUs: Slurm rejects a GPU count without existing files."""
    return [
        f"/dev/rehearsal-{gres.name}-{gres.type}{index}"
        for gres in cluster.gres
        if gres.name == "gpu"
        for index in range(gres.number)
    ]


def gres_conf(cluster: ClusterConfig) -> str:
    """Return gres.conf."""
    lines = []
    for gres in cluster.gres:
        line = f"Name={gres.name}" + (f" Type={gres.type}" if gres.type else "")
        if gres.name == "gpu":
            last = gres.number - 1
            line += f" File=/dev/rehearsal-gpu-{gres.type}" + (f"[0-{last}]" if last else "0")
        else:
            line += f" Count={gres.number}"
        lines.append(line)
    return "".join(line + "\n" for line in lines)


def etc_files(
    cluster: ClusterConfig, slurm_major: int, limits: Mapping[str, int], root_home: str
) -> dict[str, str]:
    """Return path below /etc -> text of the files that configure a host.

    slurm_major: 22 for 22.05; `CgroupPlugin=disabled` exists since 24.
    limits: maximum ulimits of a container, by Podman's names.
    root_home: root's home folder.
    """
    names = ",".join(user.name for user in USERS)
    group = ["root:x:0:", "tty:x:5:", f"docker:x:990:{names}"]
    group += [f"{user.name}:x:{user.uid}:" for user in USERS]
    cgroup = {"CgroupPlugin": "disabled" if slurm_major > 23 and not cluster.confined else "cgroup/v1"}
    if cluster.confined:
        cgroup |= {"ConstrainCores": "yes", "ConstrainRAMSpace": "yes"}
    ulimits = ", ".join(f'"{name}={value}:{value}"' for name, value in limits.items())
    passwd = [f"root:x:0:0:root:{root_home}:/bin/bash"]
    passwd += [f"{user.name}:x:{user.uid}:{user.uid}::{user.home}:/bin/bash" for user in USERS]
    hosts = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    hosts += [f"{address} {host}" for host in cluster.hosts for address in addresses(cluster, host)]
    return {
        "slurm/slurm.conf": slurm_conf(cluster),
        "slurm/gres.conf": gres_conf(cluster),
        "slurm/topology.conf": cluster.topology,
        # Read only with JobContainerType=job_container/tmpfs.
        "slurm/job_container.conf": "AutoBasePath=true\nBasePath=/var/spool/private\n",
        "slurm/cgroup.conf": _lines([f"{name}={value}" for name, value in cgroup.items()]),
        "slurm/task_prolog": "#!/bin/sh\necho export SLURMRAY_ACCELERATOR=none\n",
        "passwd": _lines(passwd),
        "group": _lines(group),
        "subuid": _lines([f"{user.name}:{user.sub}:65536" for user in USERS]),
        "subgid": _lines([f"{user.name}:{user.sub}:65536" for user in USERS]),
        "hosts": _lines(hosts),
        "gai.conf": "precedence ::ffff:0:0/96 100\n" if cluster.addresses == "both" else "",
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
        "resolv.conf": "",
        "containers/containers.conf": "[containers]\n"
        f'cgroups = "{"enabled" if cluster.confined else "disabled"}"\n'
        f'default_ulimits = [{ulimits}]\nlog_driver = "k8s-file"\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        'env = ["PODMAN_IGNORE_CGROUPSV1_WARNING=1"]\n',
        "containers/storage.conf": '[storage]\ndriver = "overlay"\nrunroot = "/run/containers/storage"\n'
        'graphroot = "/var/lib/containers/storage"\nrootless_storage_path = "/var/tmp/containers-$UID"\n'
        "[storage.options]\n"
        f'additionalimagestores = ["{IMAGES}"]\n',
        "containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}\n',
        "containers/registries.conf": 'unqualified-search-registries = []\nshort-name-mode = "permissive"\n',
    }


def _lines(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)
