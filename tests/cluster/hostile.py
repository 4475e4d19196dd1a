"""Strings that quoting errors between job spec and trainer would change."""

from __future__ import annotations

STRINGS = [
    "", " ", "  two  ", "'", '"', "''", '""', "\\", "\\\\", "\\n", "$HOME", "${HOME}", "$(id)", "`id`", "$$",
    "!!", "*", "?", "[a-z]", "{a,b}", "~", "#", "a#b", "-n", "--", "=", "a=b", ";", "&&", "|", "<in", ">out",
    "(", ")", "a\nb", "\n", "\t", "a\r\nb", "\r", "{{ settings }}", "{% if %}", "{%# no #%}", "%s%d",
    "\x01\x1b[31m", "é ü 漢字 😀", "'\"'\"'",
    # Separators of the parts of a script, and a message of the agent.
    "\nSETTINGS\n", "\nAGENT\n", "\n: <<'AGENT'\n", '\n"${@:-main}"\n', '{"v":1,"type":"exit","code":0}\n',
]  # fmt: skip

# Variables that must not reach the host's shell, srun or the runtime's client.
ENVIRONMENT = {
    "PATH": "/no/such/folder:/usr/local/bin:/usr/bin:/bin",
    "LD_PRELOAD": "",
    "BASH_ENV": "/no/such/file",
    "HOME": "/tmp/no such home",
    "IFS": "x",
    "SLURM_NTASKS": "1",
    "NEWLINE": "a\nb\n",
    "QUOTES": "'\"`$(id)\\",
    "BRACES": "{{ x }}{% y %}{# z #}",
    "UNICODE": "é漢😀",
    "EMPTY": "",
    "EQUALS": "a=b=c",
}

WRITTEN = "written.json"
_PROGRAM = (
    "import json, os, sys; "
    f"json.dump({{'argv': sys.argv[1:], 'environment': dict(os.environ)}}, open('{WRITTEN}', 'w'))"
)
WRITER = ["/usr/bin/python3", "-c", _PROGRAM]
