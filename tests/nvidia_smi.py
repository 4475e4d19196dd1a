"""Stand-in for nvidia-smi: GPUs in the XML of a recorded output, with the values of a healthy H200."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path(__file__).parent / "unit/agent/node/checks/nvidia_smi"
RECORDED = (FOLDER / "rtx-pro-6000-590.44.01.xml").read_text()
# As driver 580.159.04 shows an H200, which has ECC.
H200 = {
    "product_name": "NVIDIA H200",
    "product_architecture": "Hopper",
    "performance_state": "P0",
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "4",
    "ecc_mode/current_ecc": "Enabled",
    "ecc_mode/pending_ecc": "Enabled",
    "ecc_errors/volatile/sram_uncorrectable_parity": "0",
    "ecc_errors/volatile/sram_uncorrectable_secded": "0",
    "ecc_errors/volatile/dram_uncorrectable": "0",
    "fb_memory_usage/total": "143771 MiB",
}


def gpu(
    uuid: str,
    used: object = 0,
    processes: Sequence[tuple[int, str]] = (),
    values: dict[str, str] | None = None,
) -> ElementTree.Element:
    """A GPU. used: MiB, or another text. processes: pid and name. values: path -> text, instead of H200."""
    (element,) = ElementTree.fromstring(RECORDED).findall("gpu")
    usage = used if isinstance(used, str) else f"{used} MiB"
    for path, value in {**H200, "uuid": uuid, "fb_memory_usage/used": usage, **(values or {})}.items():
        field = element.find(path)
        assert field is not None, path
        field.text = value
    (parent,) = element.findall("processes")
    (process,) = list(parent)
    parent.remove(process)
    for pid, name in processes:
        for tag, text in (("pid", str(pid)), ("process_name", name)):
            field = process.find(tag)
            assert field is not None
            field.text = text
        parent.append(ElementTree.fromstring(ElementTree.tostring(process)))
    return element


def output(*gpus: ElementTree.Element) -> str:
    """What `nvidia-smi -q -x` prints about the GPUs."""
    head, _, rest = RECORDED.partition("\t<gpu ")
    texts = (ElementTree.tostring(each, encoding="unicode").strip() + "\n" for each in gpus)
    return head + "\t".join(("", *texts)) + rest.partition("</gpu>")[2].lstrip("\n")


def script(*gpus: ElementTree.Element) -> str:
    """Commands of a shell that answer `-q -x` and `--list-gpus`, with the shell's variables in UUIDs."""
    lines = "".join(
        f"GPU {index}: {each.findtext('product_name')} (UUID: {each.findtext('uuid')})\n"
        for index, each in enumerate(gpus)
    )
    return f"""\
case "$*" in
--list-gpus) cat <<END
{lines}END
;;
"-q -x"*) cat <<END
{output(*gpus)}END
;;
esac
"""
