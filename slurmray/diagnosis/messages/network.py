"""NCCL, RCCL, Gloo and PyTorch's store: processes that do not reach each other."""

from slurmray.diagnosis.entries import Message

_LEAVE_OUT = "Leave the node out: sbatch --exclude=NODE generated.sh."

MESSAGES: tuple[Message, ...] = (
    Message(
        "nccl-no-interface",
        "NCCL WARN Bootstrap : no socket interface found",
        "NCCL: src/bootstrap.cc, src/transport/net_socket.cc; without that line, of NCCL 2.27: "
        "github.com/NVIDIA/nccl/issues/1837",
        r"Bootstrap : no socket interface found|NET/Socket : [Nn]o (?:usable listening )?interface found"
        r"|connecting to address\s+with family \d+ is neither AF_INET",
        "NCCL found no network interface by the name in NCCL_SOCKET_IFNAME.",
        "Set network.interface to the one that connects the nodes, and leave NCCL_SOCKET_IFNAME out of env.",
        "network",
    ),
    Message(
        "nccl-connect",
        "ps-8:795:822 [0] include/socket.h:409 NCCL WARN Net : Connect to 192.168.1.9<54263> failed : No route to host",
        "NCCL: src/misc/socket.cc, src/os/linux.cc; github.com/NVIDIA/nccl/issues/1105, "
        "github.com/sgl-project/sglang/issues/3820",
        r"[Cc]onnect to \S+<\d+> (failed : |returned \d+\()|connect (to \S+ )?returned .*, exceeded error retry count",
        "A process could not connect to one on another node: NCCL uses an interface that does not reach it, a "
        "firewall is between them, or (with `Connection refused`) that process has ended.",
        "Set network.interface to the one that connects the nodes, and let the nodes reach each other's ports.",
        "network",
    ),
    Message(
        "ib-port-error",
        "node3:4301:4390 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
        "NCCL: src/transport/net_ib; github.com/NVIDIA/nccl/issues/905",
        r"Got async event : (port error|local catastrophic error)|NET/IB : \S+ async fatal event: ",
        "A port of InfiniBand or RoCE lost its link, or a network card failed.",
        "If it names the same node again and again, leave it out: sbatch --exclude=NODE generated.sh. Its administrators "
        "must check card, cable and switch.",
        "network",
    ),
    Message(
        "ib-retries-exceeded",
        "node-2:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.2.0.5<33092> with "
        "error 12, opcode 0, len 0, vendor err 129 (Recv)",
        "NCCL: src/transport/net_ib; github.com/NVIDIA/nccl/issues/905, 1405, 1814; status 12 is IBV_WC_RETRY_EXC_ERR",
        r"Got completion (from peer \S+ )?with (error |status=)(IBV_WC_RETRY_EXC_ERR\()?12\b",
        "A node did not answer over InfiniBand or RoCE: a link or port fails, the cards cannot reach each other (wrong "
        "NCCL_IB_HCA or GID), or the process there has ended.",
        "If it names the same node again and again, leave it out: sbatch --exclude=NODE generated.sh. If it never "
        "worked: set env.NCCL_IB_HCA, for RoCE also env.NCCL_IB_GID_INDEX, or try env.NCCL_IB_DISABLE: 1.",
        "network",
    ),
    Message(
        "ib-flushed",
        "gh-3714u15:7038:7053 [0] ib_plugin.c:1007 NCCL WARN NET/IB : Got completion from peer 10.1.32.3<42519> with "
        "error 5, opcode 0, len 0, vendor err 249",
        "NCCL: src/transport/net_ib; github.com/NVIDIA/nccl/issues/1737, 1405; status 5 is IBV_WC_WR_FLUSH_ERR",
        r"Got completion (from peer \S+ )?with (error |status=)(IBV_WC_WR_FLUSH_ERR\()?5\b",
        "A connection over InfiniBand or RoCE was given up after another error on it, often on another node.",
        "Look for the first error of NCCL in the logs of all nodes.",
        "network",
        is_follow_up=True,
    ),
    Message(
        "ib-access",
        "H100-2:19989:20082 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
        "fe80::966d:ae03:8b:df78%ib0<53249> with error 4, opcode 32564, len 32564, vendor err 81 (Send)",
        "NCCL: src/transport/net_ib; github.com/NVIDIA/nccl/issues/928, 1919; status 4 is IBV_WC_LOC_PROT_ERR, 10 is "
        "IBV_WC_REM_ACCESS_ERR",
        r"Got completion (from peer \S+ )?with (error |status=)(IBV_WC_\w+\()?([1-46-9]|1[013-9]|2\d)\b"
        r"|async fatal event on (QP|CQ|SRQ)",
        "A network card was refused an access to memory or to its peer: usually GPUDirect RDMA does not work on a node "
        "(PCIe ACS or IOMMU is on), or NCCL uses a wrong card.",
        "Try env.NCCL_NET_GDR_LEVEL: LOC, which does without GPUDirect RDMA: if it helps, the node's ACS is to be "
        "switched off. Else set env.NCCL_IB_HCA to the cards that connect the nodes.",
        "node",
    ),
    Message(
        "ib-locked-memory",
        "node1:4301:4399 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate "
        "memory",
        "NCCL: src/misc/ibvwrap.cc; github.com/NVIDIA/nccl-tests/issues/206",
        r"Call to ibv_\w+ failed with error Cannot allocate memory",
        "The limit of locked memory is too low for InfiniBand.",
        "Set container.ulimits: [memlock=-1:-1]. If the node's own limit is low, too: LimitMEMLOCK=infinity for slurmd.",
    ),
    Message(
        "ucx-retries-exceeded",
        "[node1:2330856:0:2330856] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend "
        "0x81 hw_synd 0/0)",
        "UCX: src/uct/ib/mlx5/ib_mlx5_log.c; github.com/openucx/ucx/issues/9590",
        r"Transport retry count exceeded on \S+",
        "A node did not answer over InfiniBand or RoCE: a link or port fails, or the process there has ended.",
        "Look for an earlier failure on the other nodes. If it names the same node again and again, leave it out: "
        "sbatch --exclude=NODE generated.sh.",
        "network",
    ),
    Message(
        "ofi-request",
        "node1:462:462 [0] NCCL WARN NET/OFI Request 0x7f01 completed with error. RC: 21. Error: unknown error. "
        "Completed length: 0",
        "aws-ofi-nccl: src/nccl_ofi_rdma.cpp, nccl_ofi_sendrecv.cpp; github.com/aws/aws-ofi-nccl/issues/161",
        r"NET/OFI Request .*completed with error",
        "A transfer over libfabric (EFA, Slingshot) failed: the other node does not answer, or the process there has "
        "ended.",
        "Look for an earlier failure on the other nodes. If it names the same node again and again, leave it out: "
        "sbatch --exclude=NODE generated.sh.",
        "network",
    ),
    Message(
        "nvshmem-start",
        "/sgl-workspace/nvshmem/src/host/init/init.cu:nvshmemi_check_state_and_init:1080: nvshmem initialization failed, "
        "exiting",
        "NVSHMEM: src/host/init/init.cu; github.com/sgl-project/sglang/issues/12533, "
        "github.com/deepseek-ai/DeepEP/issues/223",
        r"nvshmem initialization failed, exiting",
        "NVSHMEM, which DeepEP uses, could not start: the container lacks devices or rights of InfiniBand, or the node's "
        "driver or cards do not fit its transport.",
        "The lines before it name the transport. With Podman or Docker try container.args: [--privileged].",
        "node",
    ),
    Message(
        "nccl-no-plugin",
        "NCCL WARN Error: network AWS Libfabric not found.",
        "NCCL: src/net.cc, later src/plugin/net.cc",
        r"NCCL WARN Error: network .*not found|Failed to initialize any NET plugin",
        "NCCL_NET asks for a network (or a plugin of NCCL) that this node or image does not have.",
        "Leave NCCL_NET and NCCL_NET_PLUGIN out of env and of the image, or put the plugin and the devices into the "
        "container.",
    ),
    Message(
        "nccl-duplicate-gpu",
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10",
        "NCCL before 2.30: src/init.cc; github.com/verl-project/verl/issues/161, 1096, 1752",
        r"Duplicate GPU detected : rank \d+ and rank \d+ both on",
        "Two processes of one group use the same GPU: the trainer started more on a node than it has GPUs, or "
        "CUDA_VISIBLE_DEVICES was not set for each of them.",
        "Make the trainer's GPUs per node fit slurm.gpus_per_node, and leave CUDA_VISIBLE_DEVICES out of env: Ray sets "
        "it for each actor.",
    ),
    Message(
        "nccl-versions-differ",
        "NCCL WARN Mismatched NCCL version detected : rank 1 version 22705 rank 0 version 22105",
        "NCCL: src/init.cc",
        r"Mismatched NCCL version detected",
        "The processes of one group have different versions of NCCL.",
        "Use one image, by digest, on all nodes, and leave LD_PRELOAD and paths to another NCCL out of env.",
    ),
    Message(
        "collectives-differ",
        "10.10.23.10: node1:1307367:1307586 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer "
        "10.10.23.6<58683> collective mismatch error, local size 496640 remote size 65536",
        "NCCL: src/transport/net_ib, src/bootstrap.cc; github.com/NVIDIA/nccl/issues/969; Gloo: "
        "gloo/transport/tcp/pair.cc",
        r"collective mismatch error, local size|Message truncated : received [\d,]+ bytes instead of \d+"
        r"|Is there a distributed collective mismatch in your code",
        "The processes of one group called different operations, or with other sizes; or NCCL's versions or settings "
        "differ between nodes.",
        "Use one image and the same NCCL_ variables on all nodes. Else the trainer has a bug: env."
        "TORCH_DISTRIBUTED_DEBUG: DETAIL names the operation.",
    ),
    Message(
        "nccl-shared-memory",
        "node1:9621:9688 [3] misc/shmutils.cc:112 NCCL WARN Error while creating shared memory segment "
        "/dev/shm/nccl-KWfVyt (size 5967872)",
        "NCCL: src/os/linux.cc, before 2.30 src/misc/shmutils.cc; github.com/NVIDIA/nccl-tests/issues/166, "
        "github.com/NVIDIA/nccl/issues/290",
        r"failed to extend /dev/shm/nccl-|Error while creating shared memory segment (/dev/shm/)?nccl-",
        "The shared memory (/dev/shm) was full: NCCL needs some for the GPUs of a node.",
        "Raise container.shm_size. Without a container: remove what ended jobs left in /dev/shm.",
    ),
    Message(
        "nccl-timeout",
        "[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) "
        "ran for 600060 milliseconds before timing out.",
        "PyTorch: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; github.com/hiyouga/LlamaFactory/issues/7396",
        r"Watchdog caught collective operation timeout: ",
        "A rank waited for others in a collective operation: one of them failed, hangs or is slow, or called another "
        "operation; else the network hangs.",
        "Look for an earlier failure of another rank. If a step only takes long (saving, loading, compiling), raise "
        "the process group's timeout (verl: actor_rollout_ref.nccl_timeout, in seconds).",
        "network",
        is_follow_up=True,
    ),
    Message(
        "nccl-watchdog-stuck",
        "[rank1]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 1] [PG 0 Rank 1] ProcessGroupNCCL's watchdog got stuck for "
        "600 seconds without making progress in monitoring enqueued collectives.",
        "PyTorch: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; github.com/Intellindust-AI-Lab/DEIM/issues/105",
        r"ProcessGroupNCCL's watchdog got stuck for|Heartbeat monitor timed out! Process will be terminated",
        "A process hung in a call of CUDA or NCCL: another rank failed, a GPU hangs, or Python's lock was held for "
        "long, e.g. while a checkpoint was saved.",
        "Look for an earlier failure of another rank. If a step only takes long, raise "
        "env.TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC.",
        is_follow_up=True,
    ),
    Message(
        "nccl-remote-exited",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, "
        "remote process exited or there was a network error, NCCL version 2.21.5",
        "NCCL: src/init.cc, src/misc/socket.cc; PyTorch: NCCLUtils.cpp; github.com/NVIDIA/nccl/issues/1232, 2076",
        r"remote process exited or there was a network error|ncclRemoteError: "
        r"|(Net : |socketProgress: )Connection closed by remote peer",
        "A process on another GPU or node ended while this one was connected to it; sometimes the network failed.",
        "Look for the failure of the other rank, which comes first.",
        "network",
        is_follow_up=True,
    ),
    # What NCCL's error codes say in general: the lines after `Last error:` have the cause.
    Message(
        "nccl-system-error",
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, "
        "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3",
        "NCCL: src/init.cc, ncclGetErrorString; github.com/sgl-project/sglang/issues/4289",
        r"NCCL .*unhandled system error|ncclSystemError: System call",
        "A system call of NCCL failed, usually for the network or shared memory.",
        "The line after `Last error:` says which. Without one, set env.NCCL_DEBUG: WARN.",
        is_follow_up=True,
    ),
    Message(
        "nccl-internal-error",
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, internal "
        "error - please report this issue to the NCCL developers, NCCL version 2.21.5",
        "NCCL: src/init.cc, ncclGetErrorString; github.com/vllm-project/vllm/issues/10453",
        r"NCCL .*internal error - please report this issue|ncclInternalError: Internal check failed",
        "NCCL met something that it did not expect, e.g. in the node's topology or in what another process sent.",
        "The line after `Last error:` says what. Without one, set env.NCCL_DEBUG: WARN.",
        is_follow_up=True,
    ),
    Message(
        "nccl-cuda-error",
        "[rank7]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, "
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5",
        "NCCL: src/init.cc, ncclGetErrorString; github.com/NVIDIA/nccl/issues/1410",
        r"NCCL .*unhandled cuda error|ncclUnhandledCudaError: Call to CUDA function failed",
        "A call of CUDA in NCCL failed: often memory of a GPU that is used up, or an earlier error of CUDA.",
        "The line after `Last error:` says which. Without one, set env.NCCL_DEBUG: WARN.",
        is_follow_up=True,
    ),
    # PyTorch's store, by which the processes find each other.
    Message(
        "store-unreachable",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to "
        "(172.17.0.9, 46229).",
        "PyTorch: torch/csrc/distributed/c10d/socket.cpp; github.com/vllm-project/vllm/issues/19670, 2427",
        r"client socket has timed out after .*while trying to connect to"
        r"|client socket has failed to connect to any network address of",
        "A process could not reach the first process of its group: that one has ended or listens elsewhere (another "
        "address or MASTER_PORT), or a firewall is between them.",
        "Look for an earlier failure of rank 0. Else set network.interface to the one that connects the nodes, and "
        "leave MASTER_ADDR and MASTER_PORT out of env.",
        "network",
    ),
    Message(
        "store-incomplete",
        "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/3 clients joined.",
        "PyTorch: torch/csrc/distributed/c10d/TCPStore.cpp; github.com/OpenRLHF/OpenRLHF/issues/1040",
        r"Timed out after \d+ seconds waiting for (clients|workers)",
        "Some processes of a group never came to its first process: they failed or were not started, or do not reach "
        "it.",
        "Look for their failure in the logs of all nodes. If there is none, compare the number of GPUs that the trainer "
        "wants with those that it can get, and set network.interface.",
        "network",
        is_follow_up=True,
    ),
    Message(
        "store-no-unique-id",
        "[rank3]: torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId "
        "from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer",
        "PyTorch: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; github.com/yifan123/flow_grpo/issues/171",
        r"is setting up NCCL communicator and retrieving ncclUniqueId from",
        "The first rank of a group failed or did not come to the first collective operation in time.",
        "Look for the failure of rank 0, or for what it still did: a download, a checkpoint, a prompt for a login.",
        is_follow_up=True,
    ),
    Message(
        "store-lost",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
        "PyTorch: torch/csrc/distributed/c10d/Utils.hpp",
        r"DistNetworkError: ([Ff]ailed to recv|Connection reset by peer)",
        "The first process of the group, which has PyTorch's store, ended.",
        "Look for the failure of rank 0, which comes first.",
        is_follow_up=True,
    ),
    # Gloo
    Message(
        "gloo-no-interface",
        "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to "
        "find address for: eth0",
        "Gloo, in PyTorch: gloo/transport/tcp/device.cc; github.com/aws-samples/aws-do-eks/pull/51",
        r"Unable to find address for: ",
        "GLOO_SOCKET_IFNAME names an interface that this node does not have, or that has no address.",
        "Set network.interface, or network.subnet where nodes name it differently, and leave GLOO_SOCKET_IFNAME out of "
        "env.",
        "network",
    ),
    Message(
        "gloo-full-mesh",
        "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error",
        "PyTorch: torch/csrc/distributed/c10d/ProcessGroupGloo.cpp; Gloo: gloo/transport/tcp/pair.cc",
        r"Gloo connectFullMesh failed",
        "Gloo connected over an interface that does not reach the other nodes, or another rank ended.",
        "Look for an earlier failure of another rank. Else set network.interface to the one that connects the nodes.",
        "network",
    ),
    Message(
        "gloo-timeout",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for "
        "recv operation to complete",
        "Gloo, in PyTorch: gloo/transport/tcp/unbound_buffer.cc; github.com/Intellindust-AI-Lab/DEIMv2/issues/65",
        r"Timed out waiting \d+ms for (recv|send) operation to complete",
        "A rank waited for another in a collective operation on CPUs: that one failed, hangs or is slow.",
        "Look for an earlier failure of another rank. If a step only takes long, raise the process group's timeout.",
        is_follow_up=True,
    ),
    Message(
        "gloo-connection-closed",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:10895",
        "Gloo, in PyTorch: gloo/transport/tcp/pair.cc; github.com/pytorch/pytorch/issues/78514",
        r"gloo/transport/tcp/pair\.cc:\d+\] .*(Connection closed by peer|Connection reset by peer|Broken pipe)",
        "Another rank ended.",
        "Look for the failure of the other rank, which comes first.",
        is_follow_up=True,
    ),
)
