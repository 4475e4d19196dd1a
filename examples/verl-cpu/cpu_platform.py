"""A platform for verl 0.9.1 that has no accelerator: PyTorch on CPUs, gloo, and the GPUs that Ray declares.

verl imports it for VERL_USE_EXTERNAL_MODULES=cpu_platform, and takes it for VERL_PLATFORM=cpu.
"""

import contextlib

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """Names and functions of the device; what only a GPU has does nothing."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = torch.cpu

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"  # PyTorch takes a number for a GPU's

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "GPU"

    def ray_noset_envvars(self):
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


# verl asks the module of the device for its memory; torch.cpu counts none.
for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"):
    setattr(torch.cpu, name, lambda *_: 0)
torch.cpu.empty_cache = lambda: None
torch.cpu.set_rng_state = torch.set_rng_state  # loading a checkpoint sets it for the CPU, and for the device

_init_process_group = torch.distributed.init_process_group


def init_process_group(backend=None, **options):
    """torch.distributed's; verl asks for `cpu:gloo,cpu:gloo`, which names a device twice."""
    return _init_process_group("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **options)


torch.distributed.init_process_group = init_process_group
