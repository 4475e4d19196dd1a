"""What follows from the output of nvidia-smi: recorded ones, and ones with a fault written into them."""

import pytest

from slurmray.agent.node.checks import gpu_health
from tests import nvidia_smi

Finding = tuple[str, ...]


def find(text: str, *, is_shared: bool = False) -> list[Finding]:
    (gpu,), error = gpu_health.parse(text)
    assert error == ""
    return list(gpu_health.find(gpu, "node1", is_shared))


def find_in(values: dict[str, str], *, is_shared: bool = False) -> list[Finding]:
    return find(nvidia_smi.output(nvidia_smi.gpu("GPU-a", values=values)), is_shared=is_shared)


@pytest.mark.parametrize(
    ("file", "uuid", "found"),
    [
        (
            "p4-513.46",
            "GPU-1b1ea7c7-1c4b-ed49-1c72-26c65f2dd207",
            ["807 of 1024 MiB in use by (pid 1188), C:\\Windows\\explorer.exe (pid 15104)"],
        ),
        ("a10g-515.105.01", "GPU-9a9a6c50-2a47-2f51-a902-b82c3b127e94", []),
        (
            "t4-515.105.01",
            "GPU-d37e67a5-91dd-3774-a5cb-99096249601a",
            ["current_link_width: 8x", "1032 of 15360 MiB in use by python (pid 5762)"],
        ),
        ("a100-535.54.03", "GPU-513536b6-7d19-9063-b049-1e69664bb298", []),
        (
            "rtx-pro-6000-590.44.01",
            "GPU-12345678-aaaa-bbbb-cccc-0123456789ab",
            ["65720 of 97887 MiB in use by llama-server (pid 116860)"],
        ),
    ],
)
def test_recorded_outputs(file: str, uuid: str, found: list[str]) -> None:
    """Of GPUs that work: in use, or idle."""
    text = (nvidia_smi.FOLDER / f"{file}.xml").read_text()
    (gpu,), error = gpu_health.parse(text)
    assert (gpu.uuid, error) == (uuid, "")
    rows = gpu_health.find(gpu, "node1", is_shared=False)
    assert [row[2] for row in rows] == found
    assert {row[0] for row in rows} <= {"warn"}


def test_a_healthy_gpu() -> None:
    assert find_in({}) == []


OUT = "leave node1 out: slurm.exclude"
RESET, REPLACE, REPAIR = (
    f"ask the site to {verb} the GPU; until then, {OUT}" for verb in ("reset", "replace", "repair")
)
DO_THAT = f"ask the site for that; until then, {OUT}"


@pytest.mark.parametrize(
    ("path", "value", "wanted", "fix"),
    [
        ("gpu_recovery_action", "Reset", "None", DO_THAT),
        ("gpu_recovery_action", "Reboot", "None", DO_THAT),
        ("gpu_recovery_action", "Drain P2P", "None", DO_THAT),
        ("gpu_recovery_action", "Drain and Reset", "None", DO_THAT),
        ("remapped_rows/remapped_row_failure", "Yes", "No", REPLACE),
        (
            "compute_mode",
            "Prohibited",
            "Default",
            f"ask the site for nvidia-smi --compute-mode=DEFAULT, or {OUT}",
        ),
        ("fan_speed", "GPU requires reset", "a value", REPAIR),
        ("fan_speed", "[GPU is lost]", "a value", REPAIR),
        ("fb_memory_usage/used", "Unknown Error", "a value", REPAIR),
    ],
)
def test_faults_that_end_the_job(path: str, value: str, wanted: str, fix: str) -> None:
    found = f"{path.rpartition('/')[2]}: {value.strip('[]')}"
    assert find_in({path: value}) == [("preflight", "GPU health", found, wanted, fix)]


@pytest.mark.parametrize("flag", ["reset_required", "drain_and_reset_recommended"])
def test_faults_as_drivers_before_the_recovery_action_show_them(flag: str) -> None:
    text = (nvidia_smi.FOLDER / "a100-535.54.03.xml").read_text()
    text = text.replace(f"<{flag}>No<", f"<{flag}>Yes<")
    assert find(text) == [("preflight", "GPU health", f"{flag}: Yes", "No", RESET)]


@pytest.mark.parametrize("action", ["N/A", "Requested functionality has been deprecated", "Something new"])
def test_recovery_actions_that_end_no_job(action: str) -> None:
    assert find_in({"gpu_recovery_action": action}) == []


IDLE = "ask the site to reset the GPU when node1 is idle"
REASONS = "clocks_event_reasons/clocks_event_reason"
VOLATILE = "ecc_errors/volatile"


@pytest.mark.parametrize(
    ("values", "check", "found"),
    [
        ({"remapped_rows/remapped_row_pending": "Yes"}, "GPU health", "remapped_row_pending: Yes"),
        ({"retired_pages/pending_retirement": "Yes"}, "GPU health", "pending_retirement: Yes"),
        ({"retired_pages/pending_blacklist": "Yes"}, "GPU health", "pending_blacklist: Yes"),
        (
            {f"{VOLATILE}/dram_uncorrectable": "3", f"{VOLATILE}/sram_uncorrectable_parity": "1"},
            "GPU health",
            "volatile dram_uncorrectable: 3, sram_uncorrectable_parity: 1",
        ),
        ({f"{REASONS}_hw_slowdown": "Active"}, "GPU clocks", "clocks_event_reason_hw_slowdown: Active"),
        (
            {f"{REASONS}_hw_slowdown": "Active", f"{REASONS}_hw_power_brake_slowdown": "Active"},
            "GPU clocks",
            "clocks_event_reason_hw_slowdown, clocks_event_reason_hw_power_brake_slowdown: Active",
        ),
        (
            {"pci/pci_gpu_link_info/link_widths/current_link_width": "4x"},
            "GPU link",
            "current_link_width: 4x",
        ),
        ({"compute_mode": "Exclusive_Process"}, "GPU mode", "compute_mode: Exclusive_Process"),
        (
            {"fan_speed": "Unknown Error", "gpu_power_readings/average_power_draw": "ERR!"},
            "GPU health",
            "unknown to the driver: fan_speed, average_power_draw",
        ),
    ],
)
def test_warnings(values: dict[str, str], check: str, found: str) -> None:
    ((kind, *row),) = find_in(values)
    assert (kind, row[0], row[1]) == ("warn", check, found)


@pytest.mark.parametrize(
    "values",
    [
        # Part of normal work.
        {f"{REASONS}_sw_power_cap": "Active", f"{REASONS}_gpu_idle": "Active"},
        {f"{REASONS}_sw_thermal_slowdown": "Active"},
        {"pci/pci_gpu_link_info/pcie_gen/current_link_gen": "1"},
        # The link of a GPU that saves power.
        {"pci/pci_gpu_link_info/link_widths/current_link_width": "8x", "performance_state": "P8"},
        {"pci/pci_gpu_link_info/link_widths/max_link_width": "N/A"},
        {"compute_mode": "N/A"},
        # Counts of a lifetime.
        {"ecc_errors/aggregate/dram_uncorrectable": "7"},
        {f"{VOLATILE}/dram_uncorrectable": "Requested functionality has been deprecated"},
        {"product_name": "Quadro ERR! Edition"},
    ],
)
def test_values_without_a_finding(values: dict[str, str]) -> None:
    assert find_in(values) == []


def test_errors_of_old_gpus_are_counted_in_bits() -> None:
    head, bits, rest = (nvidia_smi.FOLDER / "p4-513.46.xml").read_text().partition("<double_bit>")
    rest = rest.replace("<total>N/A<", "<total>2<", 1)
    assert "volatile double_bit/total: 2" in [row[2] for row in find(head + bits + rest)]


def test_slowdown_before_driver_535() -> None:
    name = "clocks_throttle_reason_hw_thermal_slowdown"
    text = (nvidia_smi.FOLDER / "a10g-515.105.01.xml").read_text()
    ((kind, check, found, *_),) = find(text.replace(f"<{name}>Not Active", f"<{name}>Active"))
    assert (kind, check, found) == ("warn", "GPU clocks", f"{name}: Active")


def test_a_shared_gpu_may_be_in_use_and_exclusive() -> None:
    """MPS has one process for all, which needs the exclusive mode."""
    busy = {"compute_mode": "Exclusive_Process", "fb_memory_usage/used": "90000 MiB"}
    assert [row[1] for row in find_in(busy)] == ["GPU memory", "GPU mode"]
    assert find_in(busy, is_shared=True) == []


@pytest.mark.parametrize("name", ["GPU requires reset", "\udcff\udcff\x01", "a&b</pid><gpu>", "\x1b[2J" * 99])
def test_names_of_processes(name: str) -> None:
    """Users choose them, and nvidia-smi has printed arbitrary bytes for them."""
    busy = nvidia_smi.gpu("GPU-a", 90000, [(7, "NAME")])
    ((kind, _, found, *_),) = find(nvidia_smi.output(busy).replace("NAME", name))
    assert kind == "warn"
    assert found.isprintable()
    assert found.endswith("(pid 7)")
    assert len(found) < 120


def test_a_gpu_that_has_no_uuid_is_known_by_its_address() -> None:
    (gpu,), _ = gpu_health.parse(nvidia_smi.output(nvidia_smi.gpu("Unknown Error")))
    assert (gpu.uuid, gpu.address) == ("", "00000000:61:00.0")
    assert [row[2] for row in gpu_health.find(gpu, "node1", is_shared=False)] == ["uuid: Unknown Error"]


TWO = nvidia_smi.output(nvidia_smi.gpu("GPU-a"), nvidia_smi.gpu("GPU-b"))
BOMB = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>\n<nvidia_smi_log>&b;'
NESTED = TWO.replace("<mig_devices>", "<mig_devices><gpu id='x'><uuid>GPU-c</uuid></gpu>")


@pytest.mark.parametrize(
    ("text", "uuids", "error"),
    [
        (TWO, ["GPU-a", "GPU-b"], ""),
        (
            f"WARNING: infoROM is corrupted at gpu 0000:0A:00.0\n{TWO}\nWARNING: a < b\n",
            ["GPU-a", "GPU-b"],
            "",
        ),
        (NESTED, ["GPU-a", "GPU-b"], ""),
        (TWO[: TWO.index("GPU-b")], ["GPU-a"], "no element found"),
        (TWO.replace("GPU-b", "<"), ["GPU-a"], "not well-formed"),
        (TWO.replace("<uuid>GPU-b</uuid>", ""), ["GPU-a", ""], ""),
        (TWO[: TWO.index("GPU-a")], [], "no element found"),
        ("", [], "no element nvidia_smi_log"),
        ("<html></html>", [], "no element nvidia_smi_log"),
        (BOMB, [], "undefined entity"),
        ("<nvidia_smi_log>" + " " * gpu_health.OUTPUT_SIZE, [], "more than 16777216 characters"),
    ],
)
def test_xml_that_is_broken_or_unusual(text: str, uuids: list[str], error: str) -> None:
    found, message = gpu_health.parse(text)
    assert [gpu.uuid for gpu in found] == uuids
    assert message.startswith(error) if error else message == ""
