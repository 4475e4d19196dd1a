"""Hostile texts: any of them may be in a job spec."""

from __future__ import annotations

from hypothesis import strategies as st

# Lines that end a part of the script, and other texts with a meaning in bash, in Jinja or in the header.
# fmt: off
LINES = [
    "SETTINGS", "AGENT", ": <<'SETTINGS'", ": <<'AGENT'", "# ---- 2. story", "# ---- 3. agent", "exit",
    '"${@:-main}"', "#SBATCH --hold", "# slurmray-site: x", "# ---- site prologue, from x", "main() {",
    "# ---- end of site prologue", "#### agent/wire/codec.py",
]
TOKENS = [
    *LINES, *(f"\n{line}\n" for line in LINES),
    "'", '"', "\\", "$", "`", "\n", "\r", "\r\n", "\v", "\t", " ", "\x01", "\x7f", "~", "*", "?", "[a]", "!",
    "!!", "#", "&", ";", "|", "<", ">", "(", ")", "-", "--", "=", "$'", "$(id)", "${HOME}", "`id`", "{{ x }}",
    "{{", "}}", "{% raw %}", "{%", "{#", "#}", "{%#", "\\n", "\\u0041", "\\x41", "%s", "%b", "é", "☃",
    "\U0001d4b3", "\u2028", "\u202e", "\ufeff", "\ud7ff", "\U000e0001",
]
# fmt: on
TEXTS = st.lists(
    st.sampled_from(TOKENS) | st.characters(codec="utf-8", exclude_characters="\0"), max_size=10
).map("".join)
