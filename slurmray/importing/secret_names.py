"""Names of variables and options: which have secrets as values."""

from __future__ import annotations

import re

from slurmray.loading.remarks import SECRET_NAME

# Options of trainers whose value is a secret though the name does not show it.
_SECRET_OPTIONS = ("use_wandb",)
# And the other way round: names of columns, special tokens, and numbers of tokens.
_NO_SECRETS = re.compile(
    r"key|(?:.*_)?(?:(?:input|output|prompt|label|response|data|images?|video|reward(?:_fn)?|chosen|rejected|eos"
    r"|bos|pad|tools?|system|target|text|multi_turn|messages?|metadata|recv|send)_(?:key|token)"
    r"|token_(?:level|ids?|mean|len|counts?|tis|drop|dispatcher|after).*"
    r"|(?:max|min|num)_.*)",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether a variable or option, e.g. --api-key, has a secret as its value."""
    plain = re.sub(r"[.-]", "_", name.lstrip("-+"))
    if plain in _SECRET_OPTIONS:
        return True
    return bool(SECRET_NAME.search(plain)) and not _NO_SECRETS.fullmatch(plain)
