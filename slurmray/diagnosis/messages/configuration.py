"""Hydra, OmegaConf, Python and the trainer's command line."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "module-not-found",
        "ModuleNotFoundError: No module named 'flash_attn'",
        "Python",
        r"ModuleNotFoundError: No module named '[^']+'",
        "A Python module is not where the trainer runs.",
        "Install it in the image or the virtual environment of `setup`, or in container.setup.",
    ),
)
