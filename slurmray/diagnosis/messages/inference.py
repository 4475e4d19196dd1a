"""vLLM and SGLang, as the rollout of a trainer."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = ()
