"""Hugging Face, safetensors, datasets, Weights & Biases."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "hub-model-not-found",
        "OSError: Qwen/Qwen2.5-0.5B-Instrukt is not a local folder and is not a valid model identifier listed on",
        "Transformers: transformers/utils/hub.py",
        r"is not a local folder and is not a valid model identifier listed on",
        "The model's name is wrong, it is private, or the folder is not in the container.",
        "Check the name; mount the folder with container.mounts; for a private model set env.HF_TOKEN: null.",
    ),
    Message(
        "hub-unreachable",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them",
        "Transformers: transformers/utils/hub.py",
        r"We couldn't connect to 'https?://\S+' to load",
        "The nodes could not reach the model hub, and the model is not in the cache.",
        "Download it on a login node first, mount the cache and set env.HF_HOME and HF_HUB_OFFLINE: 1; or "
        "set env.https_proxy.",
        "network",
    ),
    Message(
        "hub-gated",
        "Cannot access gated repo for url https://huggingface.co/meta-llama/x/resolve/main/config.json.",
        "huggingface_hub: huggingface_hub/errors.py",
        r"Cannot access gated repo for url",
        "The model needs an accepted license and a token.",
        "Accept it on the model's page, and set env.HF_TOKEN: null to pass your token on.",
    ),
    Message(
        "wandb-no-key",
        "wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "Weights & Biases: wandb/sdk/wandb_login.py",
        r"api_key not configured \(no-tty\)",
        "Weights & Biases has no key on the nodes.",
        "Set env.WANDB_API_KEY: null and export it before you submit, or env.WANDB_MODE: offline.",
    ),
)
