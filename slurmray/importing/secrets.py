"""Which values are secrets: by what they are for, and by their form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slurmray.importing.words import Word

# A word of a name that has a secret, e.g. of --api-key, MYSQL_PWD, dbPassword.
_SECRET_WORD = re.compile(
    r"(?:^|_)(?:\w*(?:pass(?:word|wd|phrase)?|secret)s?|pwd|pw|\w*apikey|\w*token|key|keys|credentials?|auth"
    r"|authorization|netrc|webhook(?:_url)?)(?:_|$)",
    re.IGNORECASE,
)
# Names of columns, special tokens, and numbers of tokens; files and folders.
_NO_SECRETS = re.compile(
    r"key|keys|auth|pwd|oldpwd|(?:.*_)?(?:(?:input|output|prompt|label|response|data|images?|video|reward(?:_fn)?|chosen"
    r"|rejected|eos|bos|pad|tools?|system|target|text|multi_turn|messages?|metadata|recv|send|sort|primary)_(?:key|token)s?"
    r"|tokens?_(?:level|ids?|mean|len|length|counts?|tis|drop|dispatcher|after|per|in|limit|budget).*|.*_tokens|tokens"
    r"|(?:max|min|num|total|batch|skip|add|use|is|no|enable|with)_.*|ray_auth_mode|auth_mode|(?:.*_)?per_token.*|pass_(?:at|k|rate|through).*|bypass.*"
    r"|.*_(?:file|path|dir))",
    re.IGNORECASE,
)
_MAX_NAME = 200  # characters
_EXACT = ("use_wandb",)  # options of trainers whose value is a secret though the name does not show it
# A password in a URL, an address that is a secret, tokens of Hugging Face, OpenAI, GitHub, GitLab, Slack and
# AWS, and a JWT.
SECRET_VALUE = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@|\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+)"
    r"|https?://(?:hooks\.slack\.com/services/|(?:\w+\.)?discord(?:app)?\.com/api/webhooks/"
    r"|[\w.-]+\.webhook\.office\.com/|open\.feishu\.cn/open-apis/bot/|oapi\.dingtalk\.com/robot/)\S+"
    r"|[?&](?:\w*token|\w*key|password|secret|sig|signature)=[^&\s'\"]+"
    r"|(?i:authorization[\"']?\s*[:=]\s*[\"']?\w+[ \t]+[\w.~+/=-]{6,}|\bbearer[ \t]+[\w.~+/=-]{16,})",
)
# NAME: VALUE, NAME=VALUE, or "NAME"] = "VALUE"; a value of letters alone is mostly a name.
_PAIR = re.compile(r"(?<![\w.-])([\w.-]{2,80})[\"']?\]?[ \t]*[:=][ \t]*[\"']?([\w.~+/=-]{8,})(?![(\[])")
# Options whose names end so also have names of columns or of a Hub (openai/gsm8k), and switches.
_OFTEN_NAMES = ("key", "keys", "token", "wandb")
_NAME = re.compile(r"[A-Za-z][\w.-]{0,40}/[\w.-]{1,40}|[a-z]+(?:_[a-z]+)+|True|False|None")
_LONG = 16  # characters of a value whose name alone is no reason
_MAX_HEADER = 2000
_HEADER = re.compile(r"[\w-]*(?:auth|token|key|secret|cookie)[\w-]*\s*:\s*(.+)", re.IGNORECASE | re.DOTALL)
# Programs -> their options whose values are secrets, for a pair USER:PASSWORD the latter.
_OPTIONS = {
    **dict.fromkeys(("curl", "wget", "http"), ("-u", "--user", "-U", "--proxy-user", "-a", "--auth")),
    "sshpass": ("-p",),
    "docker": ("-p",),
    "podman": ("-p",),
    "kinit": ("-w",),
    "redis-cli": ("-a",),
    "openssl": ("-k", "-pass", "-passin", "-passout"),
    "ldapsearch": ("-w",),
    "mysql": ("-p",),
    "mysqldump": ("-p",),
    "mongosh": ("-p",),
    "ngc": ("--key",),
}
_ATTACHED = ("sshpass", "mysql", "mysqldump", "redis-cli")  # -pVALUE in one word
_ONLY_ATTACHED = ("mysql", "mysqldump")  # the word after -p is no value
_ENGINES = ("docker", "podman", "nerdctl")
_HEADERS = ("-H", "--header")


def is_secret_name(name: str) -> bool:
    """Whether a variable or option, e.g. --api-key, has a secret as its value."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])|[.-]", "_", name.lstrip("-+")[:_MAX_NAME])
    last = plain.rpartition("__")[2]
    if plain in _EXACT:
        return True
    return bool(_SECRET_WORD.search(plain)) and not (
        _NO_SECRETS.fullmatch(plain) or _NO_SECRETS.fullmatch(last)
    )


def _is_name(option: str, value: str) -> bool:
    return option.endswith(_OFTEN_NAMES) and bool(_NAME.fullmatch(value))


def secrets_in(text: str) -> Iterator[str]:
    """Yield the values after the names of secrets in a text of any language, e.g. a here-document."""
    for match in _PAIR.finditer(text):
        is_name = is_secret_name(match[1]) or (match[1] == "key" and len(match[2]) >= _LONG)
        is_name = is_name and not _is_name(match[1], match[2])
        if is_name and re.search("[0-9]", match[2]) and re.search("[A-Za-z]", match[2]):
            yield match[2]


def find_secrets(words: Sequence[Word], program: str) -> Iterator[tuple[Word, str]]:
    """Yield the words of a command that have secrets, and the secrets. program: its name, without folders."""
    texts = ["".join(part.text for part in word.parts if part.kind == "text") for word in words]
    arguments = _secret_arguments(program, texts)
    for number, (word, text) in enumerate(zip(words, texts, strict=True)):
        secret = _secret(program, texts[number - 1] if number else "", text)
        if number in arguments and not text.startswith("-"):
            secret = secret or text
        if secret:
            yield word, secret


def _secret(program: str, before: str, text: str) -> str | None:
    """Return the secret in a word, if it has one. before: the word before it."""
    options = _OPTIONS.get(program, ())
    name, _, value = text.partition("=")
    is_option = text.startswith("--") or (text.startswith("-") and len(text) < 3)
    takes_next = before.startswith("-") and "=" not in before and is_secret_name(before)
    takes_next = takes_next or (before in options and program not in _ONLY_ATTACHED)
    if takes_next and not is_option:
        return None if _is_name(before, text) else text
    if program in _ATTACHED and text[:2] in options and text[2:]:
        return text[2:]
    if (is_secret_name(name) and not _is_name(name, value)) or name in options:
        return value
    header = _HEADER.fullmatch(text[:_MAX_HEADER]) if before in _HEADERS else None
    return header[1] if header else None


def _secret_arguments(program: str, texts: Sequence[str]) -> Sequence[int]:
    """Return which arguments are secrets: those of `login`, or the last one of e.g. `aws configure set`."""
    if "login" in texts[1:] and program not in (*_ENGINES, "az", "gcloud"):
        return range(texts.index("login", 1) + 1, len(texts))
    is_set = "set" in texts[1:] and ("configure" in texts or "config" in texts)
    return [len(texts) - 1] if is_set and any(map(is_secret_name, texts[:-1])) else []
