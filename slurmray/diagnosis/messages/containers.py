"""Podman, Docker, Apptainer, pyxis, and what mounts or devices lead to."""

from slurmray.diagnosis.entries import Message

# What runs on the host: no image needs it.
_ON_HOST = r"(runc|crun|conmon|newuidmap|newgidmap|slirp4netns|pasta|netavark|fuse-overlayfs|catatonit|nvidia-c[\w.-]{1,40})"
_PYXIS = "pyxis 0.24: pyxis_slurmstepd.c"

MESSAGES: tuple[Message, ...] = (
    # GPUs
    Message(
        "cdi-older-than-driver",
        "Error: crun: cannot stat `/usr/lib64/libEGL_nvidia.so.575.64.03`: No such file or directory: OCI runtime "
        "attempted to invoke a command that was not found",
        "crun: github.com/containers/ramalama/issues/1900; of Podman: "
        "github.com/NVIDIA/nvidia-container-toolkit/issues/885",
        r"(cannot stat|error stat'ing file) \S*(nvidia|libcuda|libnv)\S*: [Nn]o such file"
        r"|failed to stat CDI host device",
        "The node's CDI specification names files that are not there any more: it is older than the driver.",
        "Write it again on that node: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml.",
        "node",
    ),
    Message(
        "cdi-device-missing",
        "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
        "Podman, by github.com/cncf-tags/container-device-interface; "
        "github.com/NVIDIA/nvidia-container-toolkit/issues/146",
        r"unresolvable CDI devices",
        "The node has no CDI specification of its GPUs, or one without that GPU.",
        "Write it on that node: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, readable by all.",
        "node",
    ),
    Message(
        "docker-without-nvidia-runtime",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "Docker: daemon/devices.go; github.com/NVIDIA/nvidia-docker/issues/1352",
        r"could not select device driver .* with capabilities",
        "Docker on the node cannot hand out GPUs, as it lacks the NVIDIA Container Toolkit.",
        "Install it on that node, run nvidia-ctk runtime configure --runtime=docker, and restart Docker.",
        "node",
    ),
    Message(
        "nvidia-cli-driver-not-loaded",
        "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.",
        "libnvidia-container; github.com/NVIDIA/nvidia-docker/issues/1393; without a driver: "
        "github.com/NVIDIA/libnvidia-container/issues/231",
        r"nvidia-container-cli: .*nvml error: driver not loaded"
        r"|nvidia-container-cli: .*load library failed: libnvidia-ml",
        "The node's kernel has not loaded NVIDIA's driver, often after a kernel update, or it is not installed.",
        "Install it there, load it with modprobe nvidia, or leave the node out: sbatch --exclude=NODE generated.sh.",
        "node",
    ),
    Message(
        "nvidia-cli-driver-error",
        "nvidia-container-cli: initialization error: driver error: failed to process request",
        "libnvidia-container; github.com/NVIDIA/nvidia-docker/issues/1252 and 1675",
        r"initialization error: driver (rpc )?error: ",
        "NVIDIA's driver on the node did not answer when the container was prepared.",
        "`nvidia-smi` on the node shows whether it works. Leave the node out: sbatch --exclude=NODE generated.sh.",
        "node",
    ),
    Message(
        "image-newer-than-driver",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver to "
        "a newer version, or use an earlier cuda container: unknown",
        "libnvidia-container: src/cli/configure.c",
        r"requirement error: unsatisfied condition:",
        "The image is built for a newer CUDA than the node's driver can run.",
        "Use an image for the CUDA version that nvidia-smi shows on the node, or nodes with a newer driver.",
        "node",
    ),
    # Mounts and programs
    Message(
        "mount-source-missing",
        "Error: statfs /data/gsm8k: no such file or directory",
        "Podman: github.com/podman-container-tools/podman/issues/14781; Docker: volume/mounts/validate.go; "
        f"{_PYXIS}; Apptainer: internal/pkg/runtime/engine/apptainer/container_linux.go",
        r"statfs \S+ no such file or directory|bind source path does not exist"
        r"|--container-mounts: source path does not exist|mounting \S+ mount source \S+ doesn't exist",
        "A path of container.mounts does not exist on the node.",
        "Create it there, or correct container.mounts.",
        "node",
    ),
    Message(
        "mount-destination-missing",
        "FATAL:   container creation failed: mount hook function failure: mount /storage->/storage error: while "
        "mounting /storage: destination /storage doesn't exist in container",
        "Apptainer: github.com/apptainer/apptainer/issues/1895",
        r"destination \S+ doesn't exist in container",
        "Apptainer cannot create the destination of a mount, as it may not change the image.",
        "Create that folder in the image, or let container.mounts name a destination that the image has.",
    ),
    Message(
        "host-program-missing",
        'Error: command required for rootless mode with multiple IDs: exec: "newuidmap": executable file not found in '
        "$PATH",
        "Go: os/exec; github.com/NixOS/nixpkgs/issues/215332, github.com/NVIDIA/nvidia-docker/issues/1190 and 1121, "
        "github.com/gglyptodon/helixer-docker/issues/5; enroot: src/common.sh, github.com/NVIDIA/pyxis/issues/101",
        rf"{_ON_HOST}\W{{1,8}}: executable file not found in \$PATH"
        r"|fork/exec /\S+: no such file or directory: unknown"
        r'|container creation failed: exec: "\S+nvidia-container-cli": stat |\[ERROR\] Command not found: '
        r"|container-init binary not found on the host",
        "The node lacks a program that the container runtime calls; the line names it.",
        "Install it on that node (newuidmap is in uidmap or shadow-utils, those of NVIDIA in nvidia-container-toolkit), "
        "if it is catatonit, remove --init from container.args: the job needs none. Or leave the node out: sbatch --exclude=NODE generated.sh.",
        "node",
    ),
    Message(
        "container-limit-refused",
        "Error: crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted: OCI permission denied",
        "crun, run with Podman 4.3.1, 5.4.2 and 5.8.6",
        r"setrlimit `\w+`: Operation not permitted",
        "container.ulimits, or an option in container.args, asks for more than the hard limit that you have on the node.",
        "Lower it to what `ulimit -Hn` (open files) or `ulimit -Hu` (processes) shows in a job, or let an administrator "
        "raise that limit.",
    ),
    Message(
        "container-shm-size-with-ipc",
        "Error: invalid config provided: cannot set shmsize when running in the {host } IPC Namespace",
        "Podman 4.3.1, 5.4.2 and 5.8.6, run",
        r"cannot set shmsize when running in the \{\S* ?\S*\} IPC Namespace",
        "container.args has --ipc, and Podman then accepts no --shm-size, which slurmray sets.",
        "Remove --ipc from container.args: container.shm_size is the size of /dev/shm.",
    ),
    Message(
        "container-program-missing",
        'Error response from daemon: failed to create task for container: exec: "python3": executable file not '
        "found in $PATH: unknown",
        "runc and Go: os/exec, of a path: github.com/docker-library/docs/issues/1437; crun: src/libcrun/container.c; "
        "enroot: github.com/NVIDIA/pyxis/issues/61",
        rf"exec: \W{{1,8}}(?!{_ON_HOST}\W)[^\s\\\"]+\W{{1,8}}: executable file not found in \$PATH"
        r"|exec: \W{1,8}/(?!\S*nvidia-c)\S+ stat /\S+ no such file or directory"
        r"|executable file `\S+ not found in \$PATH|enroot-switchroot: failed to execute: \S+ No such file",
        "The image has no program by that name, or not in its PATH.",
        "Use an image with bash, Python and Ray, and name a Python that is not in PATH in container.python; programs of the "
        "host are not in the container.",
    ),
    Message(
        "wrong-architecture",
        "standard_init_linux.go:228: exec user process caused: exec format error",
        "runc before 1.1, in other words since, and Linux: errno 8; Apptainer: pkg/image/sif.go",
        r"(exec user process caused|exec /\S+): exec format error|the image's architecture \(\w+\) could not run on",
        "The image or the program is built for another CPU architecture than the node's, e.g. amd64 on arm64.",
        "Use an image for the node's architecture, which `uname -m` shows there.",
    ),
    # Rootless containers
    Message(
        "user-namespaces-refused",
        "cannot clone: Operation not permitted",
        "Podman: pkg/rootless/rootless_linux.c; Apptainer: cmd/starter/c/starter.c, of Ubuntu 24.04: "
        "github.com/apptainer/apptainer/issues/2457; enroot-nsenter",
        r"cannot clone: Operation not permitted|cannot clone: No space left on device|ailed to create user namespace"
        r"|Could not write info to setgroups: Permission denied",
        "The node's kernel does not let you create user namespaces, which containers without root need.",
        "Let an administrator raise user.max_user_namespaces with sysctl on that node, on Debian set "
        "kernel.unprivileged_userns_clone=1, and on Ubuntu install the program's AppArmor profile or set "
        "kernel.apparmor_restrict_unprivileged_userns=0.",
        "node",
    ),
    Message(
        "uid-map-refused",
        "ERRO[0000] running `/usr/bin/newuidmap 25137 0 1000 1 1 100000 65536`: newuidmap: write to uid_map "
        "failed: Operation not permitted",
        "shadow: src/newuidmap.c and libmisc/idmapping.c, as Podman runs them",
        r"new[ug]idmap: write to [ug]id_map failed|new[ug]idmap: open of [ug]id_map failed"
        r"|new[ug]idmap: [ug]id range \[",
        "The node does not let Podman map your subordinate ids: newuidmap has no privilege, or the ranges in "
        "/etc/subuid are wrong.",
        "Let an administrator check /etc/subuid, /etc/subgid and the capabilities of newuidmap on that node.",
        "node",
    ),
    Message(
        "too-few-subordinate-ids",
        "Error processing tar file(exit status 1): there might not be enough IDs available in the namespace "
        "(requested 0:12 for /var/spool/mail): lchown /var/spool/mail: invalid argument",
        "github.com/containers/storage, before Podman 4: github.com/podman-container-tools/podman/issues/18447; "
        "Podman 4.3 and 5.4",
        r"there might not be enough IDs available in the namespace|potentially insufficient UIDs or GIDs available in",
        "You have no, or too few, subordinate ids on the node, and the image has files of other users.",
        "Let an administrator add ranges for you to /etc/subuid and /etc/subgid on the nodes, then run podman "
        "system migrate there.",
        "node",
    ),
    Message(
        "cgroup-controller-missing",
        "Error: OCI runtime error: crun: the requested cgroup controller `cpu` is not available",
        "crun: src/libcrun/cgroup.c",
        r"the requested cgroup controller \S+ is not available",
        "The container has a limit that the node's cgroups do not give to you, e.g. of CPUs or processes.",
        "Remove --cpus, --memory and --pids-limit from container.args; Slurm limits the job.",
    ),
    Message(
        "cgroup-refused",
        'Error: container_linux.go:346: starting container process caused "process_linux.go:297: applying cgroup '
        'configuration for process caused \\"mkdir /sys/fs/cgroup/libpod_parent: permission denied\\"": OCI runtime '
        "permission denied error",
        "runc: libcontainer/process_linux.go; github.com/podman-container-tools/podman/issues/4702; of crun: 4707",
        r"appl(?:y|ying) cgroup configuration.*: permission denied|creating cgroup directory \S+ Permission denied",
        "The container runtime, often runc, may not create a cgroup of its own below the job's.",
        "Install crun on that node, with which slurmray needs none, or let an administrator delegate cgroups to users.",
        "node",
    ),
    Message(
        "podman-locks-used-up",
        "Error: allocating lock for new container: allocation failed; exceeded num_locks (2048)",
        "Podman: libpod/lock/shm/shm_lock.go",
        r"allocation failed; exceeded num_locks",
        "Podman on the node has as many containers and volumes as it can count, most of them left by other jobs.",
        "Remove them on that node: podman container prune and podman volume prune.",
        "node",
    ),
    Message(
        "podman-locks-refused",
        "Error: failed to get new shm lock manager: failed to create 2048 locks in /libpod_rootless_lock_1001: "
        "permission denied",
        "Podman: libpod/runtime.go; github.com/podman-container-tools/podman/issues/21810",
        r"failed to get new shm lock manager",
        "Podman cannot open its locks in the node's /dev/shm.",
        "Remove /dev/shm/libpod_rootless_lock_UID on that node, with your own uid, while no container of yours "
        "runs there.",
        "node",
    ),
    Message(
        "podman-database-mismatch",
        'Error: database storage graph driver "" does not match our storage graph driver "overlay": database '
        "configuration mismatch",
        "Podman: libpod; github.com/podman-container-tools/podman/issues/21683, before Podman 4: 2347",
        r"database configuration mismatch",
        "Podman's storage on the node was created with other settings than it has now.",
        "Make storage.conf as before, or remove the storage with podman system reset on that node.",
        "node",
    ),
    Message(
        "container-keys-used-up",
        "Error: crun: create keyring `410742b2d2de473d2cb955f29b6988303489c911db754cfeb48c80478866d843`: Disk quota "
        "exceeded: OCI runtime error",
        "crun: github.com/podman-desktop/podman-desktop/issues/8452; runc: "
        "github.com/podman-container-tools/podman/issues/13363",
        r"create keyring \S+ Disk quota exceeded|create session key: disk quota exceeded",
        "You have as many kernel keys on the node as it allows (kernel.keys.maxkeys), one per container. No disk is "
        "full.",
        "Set keyring = false under [containers] in ~/.config/containers/containers.conf, or let an administrator raise "
        "kernel.keys.maxkeys on that node.",
        "node",
    ),
    # Images
    Message(
        "image-disk-full",
        'Error: writing blob: storing blob to file "/var/tmp/container_images_storage1/3": write '
        "/var/tmp/container_images_storage1/3: no space left on device",
        "github.com/containers/image; github.com/podman-container-tools/podman/issues/7351, 15957 and 19377; Apptainer "
        "1.4.5 and its mksquashfs, run on a full disk",
        r"(blob|layer|tar file|unpack|pull|extract|-archive: |creating SIF).*: no space left on device"
        r"|Write failed because No space left on device|Probably out of space on output filesystem",
        "The node's disk for images, or for their download (/var/tmp), is full.",
        "Free space there: `podman system df` or `docker system df` shows what images use. With Podman and Apptainer, "
        "`export TMPDIR=...` in `setup` moves the download, and APPTAINER_CACHEDIR the image.",
        "disk",
    ),
    Message(
        "archive-format",
        "Error: payload does not match any of the supported image formats",
        "Podman 4.3.1, run with a .tar.gz that 5.4.2 loads",
        r"payload does not match any of the supported image formats",
        "The file of container.archive is no archive of an image, or compressed, which Podman 4.3 does not unpack.",
        "Unpack it: gunzip FILE. `podman save` and `docker save` write archives that are not compressed.",
    ),
    Message(
        "registry-unreachable",
        "Error: initializing source docker://httpd:latest: pinging container registry registry-1.docker.io: Get "
        '"https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host',
        "Go: net and net/http; github.com/crc-org/crc/issues/3166, github.com/podman-container-tools/podman/issues/1948",
        r"/v2/\S*: dial tcp\b|/v2/\S*: net/http: (?:request canceled|TLS handshake)",
        "The node does not reach the registry: it has no internet, or only by a proxy.",
        "Pull the image on a host with internet, docker save it, and set container.archive; or `export "
        "https_proxy=...` in `setup`.",
        "network",
    ),
    Message(
        "registry-certificate",
        "Error: initializing source docker://python:3.8.1: pinging container registry registry-1.docker.io: Get "
        '"https://registry-1.docker.io/v2/": x509: certificate signed by unknown authority',
        "Go: crypto/x509; github.com/podman-container-tools/podman/issues/13330, "
        "github.com/apptainer/singularity/issues/4725",
        r"x509: certificate signed by unknown authority",
        "The node does not trust the registry's certificate: it lacks ca-certificates, or a proxy or the site signed it.",
        "Put the authority's certificate into /etc/containers/certs.d/HOST/ca.crt on the nodes, for Docker into "
        "/etc/docker/certs.d/HOST/ca.crt; or pull the image elsewhere and set container.archive.",
        "node",
    ),
    Message(
        "registry-rate-limit",
        "Error: reading manifest 2.60.0 in docker.io/rayproject/ray: toomanyrequests: You have reached your "
        "unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit",
        "Docker Hub, docs.docker.com/docker-hub/usage/pulls; enroot: src/common.sh",
        r"toomanyrequests: |URL \S+ returned error code: 429",
        "The registry lets the nodes' address pull no more images for a while.",
        "Log in on the nodes (podman login docker.io), or pull once and set container.archive.",
    ),
    Message(
        "registry-unauthorized",
        "unauthorized: authentication required",
        "Registries, by the OCI distribution specification; Quay: github.com/synesthesiam/docker-marytts/issues/3; "
        "enroot: github.com/NVIDIA/pyxis/issues/168, github.com/NVIDIA/enroot/issues/161",
        r"unauthorized: authentication required|unauthorized: access to the requested resource is not authorized"
        r"|requested access to the resource is denied|URL \S+ returned error code: 401",
        "There is no image by that name, or it is private and the node is not logged in to the registry.",
        "Check container.image; log in on the nodes with podman login or docker login, with pyxis in "
        "~/.config/enroot/.credentials.",
    ),
    Message(
        "image-tag-missing",
        "Error: initializing source docker://ghcr.io/ricoberger/script_exporter:dev: reading manifest dev in "
        "ghcr.io/ricoberger/script_exporter: manifest unknown",
        "Registries; github.com/ricoberger/script_exporter/issues/182",
        r"manifest unknown|/manifests/\S+ returned error code: 404",
        "The registry has no image with that tag.",
        "Correct the tag in container.image.",
    ),
    # Docker's daemon
    Message(
        "docker-daemon-down",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "Docker: client/errors.go; of 2026: github.com/launchdarkly/find-code-references/issues/65",
        r"Cannot connect to the Docker daemon at|failed to connect to the docker API at",
        "Docker's daemon does not run on the node.",
        "Start it there, or set container.runtime: podman.",
        "node",
    ),
    Message(
        "docker-daemon-refused",
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
        "Docker: client/request.go",
        r"permission denied while trying to connect to the [Dd]ocker",
        "You may not use Docker on the node, as you are not in its group docker.",
        "Let an administrator add you to that group, or set container.runtime: podman.",
    ),
    # Apptainer
    Message(
        "apptainer-cannot-mount-image",
        "FATAL:   container creation failed: mount /proc/self/fd/3->/var/apptainer/mnt/session/rootfs error: while "
        "mounting image /proc/self/fd/3: squashfuse_ll exited with status 1: fusermount3: mount failed: "
        "Operation not permitted",
        "Apptainer: github.com/apptainer/apptainer/issues/778, 949 and 2324",
        r"squashfuse(?:_ll)? (?:exited with status|failed to mount)|image driver squashfuse\S* instance exited"
        r"|fuse: failed to exec fusermount",
        "The node cannot mount the image with FUSE: fusermount or /dev/fuse is missing, the kernel is too old, the file "
        "is damaged or its file system is slow.",
        "Install fuse3 on that node, or let container.image name a sandbox: apptainer build --sandbox DIR "
        "docker://IMAGE.",
        "node",
    ),
    Message(
        "apptainer-cannot-extract-image",
        "FATAL:   while extracting /home/alice/ray.sif: root filesystem extraction failed: extract command failed: "
        "WARNING: passwd file doesn't exist in container, not updating",
        "Apptainer: github.com/apptainer/apptainer/issues/760 and 2492",
        r"root filesystem extraction failed(?!.*user namespace)",
        "Apptainer cannot mount the image on the node, and could not unpack it either.",
        "Install squashfuse on that node, or let container.image name a sandbox: apptainer build --sandbox DIR "
        "docker://IMAGE.",
        "node",
    ),
    Message(
        "apptainer-mount-failed",
        "FATAL:   container creation failed: mount hook function failure: mount /proc/self/fd/3->/var/apptainer/mnt/"
        "session/rootfs error: while mounting image /proc/self/fd/3: kernel reported a bad superblock for squashfs "
        "image partition, possible causes are that your kernel doesn't support the compression algorithm or the image "
        "is corrupted",
        "Apptainer: internal/pkg/runtime/engine/apptainer/container_linux.go; "
        "github.com/apptainer/apptainer/issues/2121 and 2466",
        r"container creation failed: (?:mount hook function failure: )?mount \S+ (?!.*(doesn't exist|squashfuse))",
        "Apptainer could not mount the image or a path of container.mounts, for the reason in that line.",
        "Correct that path, or build the image again.",
        "node",
    ),
    # pyxis and enroot
    Message(
        "pyxis-import-failed",
        "slurmstepd: error: pyxis: failed to import docker image: nvcr.io#nvidia/pytorch:25.10-py3",
        f"{_PYXIS}; github.com/NVIDIA/pyxis/issues/71",
        r"pyxis: failed to import docker image",
        "enroot could not download the image; its own log follows, with the reason after [ERROR].",
        "Check container.image. Try it on a node: enroot import docker://IMAGE.",
        is_follow_up=True,
    ),
    Message(
        "pyxis-start-failed",
        "slurmstepd: error: pyxis: container start failed with error code: 1",
        f"{_PYXIS}; github.com/NVIDIA/pyxis/issues/101",
        r"pyxis: container start failed with error code|pyxis: couldn't start container"
        r"|pyxis: container exited too soon|pyxis: failed to create container filesystem",
        "enroot could not create or start the container; its own log follows.",
        "Read the lines below it, and enroot's hooks in /etc/enroot/hooks.d on that node.",
        "node",
        is_follow_up=True,
    ),
    Message(
        "enroot-runtime-folder",
        "slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': Permission denied",
        "GNU coreutils; github.com/NVIDIA/pyxis/issues/12; of pyxis: github.com/NVIDIA/pyxis/issues/4",
        r"mkdir: cannot create directory \S+/enroot\S* Permission denied|pyxis: (?:slurmd: )?couldn't mkdir ",
        "enroot or pyxis may not create its folder for running containers on the node.",
        "Let an administrator create it there, or name a folder of each user in enroot.conf (ENROOT_RUNTIME_PATH).",
        "node",
    ),
    Message(
        "enroot-hook-failed",
        "slurmstepd: error: pyxis:     [ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1",
        "enroot: src/common.sh; github.com/NVIDIA/enroot/issues/234",
        r"/hooks\.d/\S+ exited with return code",
        "A hook of enroot failed on the node; 98-nvidia.sh prepares the GPUs. The line before says why.",
        "Let an administrator check NVIDIA's driver and libnvidia-container on that node.",
        "node",
    ),
)
