"""The page about a job: its numbers are those of the events, and no text of a job becomes HTML."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from typing import Any

import pytest

import slurmray
from slurmray.diagnosis.exit_codes import EXIT_CODES
from slurmray.resources import data_folder
from slurmray.slurm.account import Account, list_allocations, make_account
from slurmray.slurm.job_status import make_status
from slurmray.slurm.report_page import GENERATOR, hide, render_report
from slurmray.slurm.states import Event
from slurmray.slurm.timeline import STEPS
from slurmray.slurm.usage import NodeHeat
from tests.plans import plan_of

T0 = 1764120000.0  # 2025-11-26 01:20:00 UTC
RECORD = {"JobName": "verl", "StdOut": "/home/a/slurm-7.out"}


def event(name: str, after: float, **fields: Any) -> Event:
    return {"v": 1, "time": T0 + after, "event": name, **fields}


def start(nodes: list[str], attempt: int = 0) -> Event:
    return event("start", 0, attempt=attempt, nodes=nodes, ray_nodes=len(nodes), run_dir="/home/a/runs/7-1")


def bring_up(nodes: list[str]) -> list[Event]:
    """Node n is done with step s after s + n / 1000 seconds; with 8 GPUs."""
    return [
        event("nodes", step + number / 1000, step=name, nodes=[node], gpus=8 if name == "ray" else 0)
        for step, name in enumerate(STEPS, 1)
        for number, node in enumerate(nodes)
    ]


END = event("end", 90, exit_code=0, source="trainer", kind="", node="", text="done: trainer exited with 0")


def render(
    events: list[Event], state: str = "COMPLETED", earlier: tuple[list[Event], ...] = (), text: str = ""
) -> str:
    now = T0 + 100
    status = make_status(7, state, RECORD, events, now)
    account = make_account(status, list_allocations(status, [*earlier, events], now), {}, now)
    return render_report(status, events, earlier, text, now, {}, account)


class Page(HTMLParser):
    """A page's tables, by their headings or caption, texts, and elements with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._is_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._is_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._is_cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._is_cell:
            self.tables[-1][-1][-1] += data.strip("\n")

    def rows(self, *first: str) -> list[list[str]]:
        """The rows of the one table whose header begins with these cells."""
        (rows,) = [table for table in self.tables if table[0][: len(first)] == list(first)]
        return rows[1:]

    def all(self, tag: str, class_: str = "") -> list[dict[str, str | None]]:
        return [item for name, item in self.elements if name == tag and class_ in (item.get("class") or "")]


def test_the_numbers_are_those_of_the_events() -> None:
    nodes = ["gpu-1", "gpu-2", "gpu-3"]
    loss = event("node_loss", 50.5, node="gpu-2", text="no heartbeat for 25 s")
    trainer = event("trainer", 6, command="python3 train.py")
    page = Page(render([start(nodes), *bring_up(nodes), trainer, loss, END]))
    assert page.rows("node") == [
        [node, *(f"{step + number / 1000:.3f}" for step in range(1, 6))] for number, node in enumerate(nodes)
    ]
    assert [row[:1] + row[2:] for row in page.rows("step", "what happens")] == [
        [name, "3/3", f"{step:.1f} s", f"{step:.1f} s", "gpu-3"] for step, name in enumerate(STEPS, 1)
    ]
    assert page.rows("seconds from the job's start") == [
        ["0.000", "0", "0"],
        ["5.000", "1", "8"],
        ["5.001", "2", "16"],
        ["5.002", "3", "24"],
        ["50.500", "2", "16"],
    ]
    assert "GPUs in Ray: at most 24" in page.text
    steps = page.rows("step", "lasted")
    assert [row[:2] for row in steps] == [["preflight", "6.0 s"], ["training", "1 min"]]
    assert page.rows("time") == [
        ["2025-11-26 01:20:50 UTC", "gpu-2", "node loss: no heartbeat for 25 s"],
    ]
    assert "Job 7 verl:\nCOMPLETED" in page.text
    assert "done: trainer exited with 0" in page.text


def test_the_bars_of_the_chart() -> None:
    """Each node has one bar for each step, side by side; a node that is missing waits until the end."""
    nodes = ["gpu-1", "gpu-2"]
    events = [event for event in bring_up(nodes) if event["nodes"] != ["gpu-2"] or event["step"] != "ray"]
    page = Page(render([start(nodes), *events, END], "FAILED"))
    bars = [(rect["class"], float(rect["x"] or ""), float(rect["width"] or "")) for rect in page.all("rect")]
    assert [name for name, _, _ in bars] == [*STEPS, *list(STEPS)[:-1], "waiting"]
    for one, two in itertools.pairwise(bars[:5]):
        assert one[1] + one[2] == pytest.approx(two[1], abs=0.11)
    begin, width = bars[0][1:]
    second = bars[-1][1] - begin  # gpu-2 waits from second 4.001
    assert width == pytest.approx(second / 4.001, abs=0.1)
    assert bars[-1][1] + bars[-1][2] == pytest.approx(begin + 90 * second / 4.001, rel=0.01)
    assert "gpu-2: agent 1.0 s, checks 2.0 s, image 3.0 s, container 4.0 s, not ready" in page.text
    (last,) = [row for row in page.rows("step", "what happens") if row[0] == "ray"]
    assert last[2:] == ["1/2", "5.0 s", "5.0 s", "gpu-1not done: gpu-2"]


def test_many_nodes() -> None:
    nodes = [f"gpu-{number:04d}.cluster.example.org" for number in range(1024)]
    text = render([start(nodes), *bring_up(nodes), END])
    assert len(text.encode()) < 2_000_000
    page = Page(text)
    assert len(page.rows("node")) == 1024
    assert len(page.all("rect")) == 5 * 1024
    assert len(page.all("g")) == 1024


HOSTILE = "<script>alert(1)</script>\"'><img src=x>&amp;"


def test_texts_of_a_job_do_not_become_html() -> None:
    nodes = [f"{HOSTILE}1", f"{HOSTILE}\udcff"]
    row = dict.fromkeys(("kind", "check", "found", "wanted", "fix"), HOSTILE)
    end = event("end", 90, exit_code=71, source="slurmray", kind="node_lost", node=HOSTILE, text=HOSTILE)
    events = [
        {**start(nodes), "spares": [f"{HOSTILE}2"]},
        event("restart", 0, restart=1, nodes=nodes, spares=[], failed=[], text=HOSTILE),
        *bring_up(nodes),
        event("finding", 1, node=HOSTILE, **row),
        event("phase", 2, phase=HOSTILE, text=HOSTILE),
        event("trainer", 6, command=HOSTILE),
        event("node_loss", 7, node=HOSTILE, text=HOSTILE),
        event("requeue", 8, reason=HOSTILE, attempt=2),
        end,
    ]
    script = slurmray.render(slurmray.JobSpec(name="x", env={"SOME_NAME": HOSTILE}, run=[HOSTILE]))
    record = {"JobName": HOSTILE, "StdOut": HOSTILE}
    status = make_status(7, "FAILED", record, events, T0 + 100)
    status = status._replace(state=HOSTILE, reason=HOSTILE, run_dir=HOSTILE)
    heat = {HOSTILE: NodeHeat([None, 50.0], 50.0, 0.0)}
    text = render_report(status, events, [events], script, T0 + 100, heat, None)
    page = Page(text)
    assert {tag for tag, _ in page.elements} <= {
        *(
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "header",
            "main",
            "section",
            "h1",
            "h2",
            "h3",
            "p",
        ),
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "div", "span", "strong", "br", "pre"),
        *("details", "summary", "svg", "line", "text", "g", "rect", "path"),
    }
    for _, attributes in page.elements:
        assert not any("alert" in str(value) or name.startswith("on") for name, value in attributes.items())
        assert "src" not in attributes
        assert "href" not in attributes
    assert page.text.count(HOSTILE) > 20
    assert "url(" not in text
    text.encode()


def test_utilization_over_time() -> None:
    """A bar for equal cells beside each other, none where there are no samples, and a table."""
    events = [start(["a", "b"]), *bring_up(["a", "b"]), event("trainer", 6, command="x"), END]
    heat = {
        "a": NodeHeat([None, 80.0, 90.0, 0.0], 56.7, 1 / 3),
        "b": NodeHeat([30.0, 30.0, 60.0, 10.0], 32.5, 0.0),
    }
    status = make_status(7, "COMPLETED", RECORD, events, T0 + 100)
    page = Page(render_report(status, events, [], "", T0 + 100, heat, None))
    bars = [
        (row["class"], round(float(row["x"] or 0)), round(float(row["width"] or 0)))
        for row in page.all("rect")
        if str(row.get("class")).startswith("heat")
    ]
    quarter = (985 - 160) / 4
    assert bars == [
        ("heat4", round(160 + quarter), round(2 * quarter)),
        ("heat0", round(160 + 3 * quarter), round(quarter)),
        ("heat2", 160, round(2 * quarter)),
        ("heat3", round(160 + 2 * quarter), round(quarter)),
        ("heat1", round(160 + 3 * quarter), round(quarter)),
    ]
    assert [["a", "57 %", "33 %"], ["b", "32 %", "0 %"]] in [table[1:] for table in page.tables]


def test_an_empty_job() -> None:
    status = make_status(7, "PENDING", {**RECORD, "Reason": "Resources"}, [], T0)
    page = Page(render_report(status, [], [], "", T0, {}, None))
    assert "waits for free nodes" in page.text
    assert "The job has not started." in page.text
    assert page.all("svg") == []


def test_a_job_without_ray() -> None:
    """E.g. of slurmray doctor."""
    events = [event("start", 0, attempt=0, nodes=["a"], run_dir="/r", ray_nodes=0), END]
    page = Page(render(events))
    assert "The job starts no Ray." in page.text
    assert page.all("svg") == []
    assert "Settings\nNot available" in page.text


def test_a_failure_has_its_fix() -> None:
    text = "failed (71 node lost): gpu-2: no heartbeat"
    end = event("end", 90, exit_code=71, source="slurmray", kind="node_lost", node="gpu-2", text=text)
    page = Page(render([start(["gpu-2"]), end], "FAILED"))
    assert f"Fix: {EXIT_CODES[71].fix}" in page.text
    assert page.rows("time") == [["2025-11-26 01:21:30 UTC", "gpu-2", text]]
    unrecorded = Page(render([start(["a"])], "NODE_FAIL")).text
    assert "It could not record how it ended." in unrecorded
    assert "Failures\nNone recorded." in unrecorded
    assert "No node was lost, and slurmray has not ended the job." in Page(render([start(["a"]), END])).text


def test_findings_of_several_nodes_are_one_row() -> None:
    row = {"kind": "warn", "check": "/dev/shm", "found": "64 MB", "wanted": "1 GB", "fix": "mount it"}
    events = [event("finding", 1, node=f"gpu-{number}", **row) for number in (1, 2, 3)]
    refused = {**row, "found": "10.0.0.9:1234: refused"}
    events += [event("finding", 1, node="gpu-4", **refused)]
    events += [event("finding", 1, node="gpu-5", **{**refused, "found": "10.0.0.9:4321: refused"})]
    page = Page(render([start(["gpu-1"]), *events]))
    assert page.rows("nodes") == [
        ["gpu-[1-3]", "warn", "/dev/shm", "64 MB", "1 GB", "mount it"],
        ["gpu-[4-5]", "warn", "/dev/shm", "10.0.0.9:1234: refused", "1 GB", "mount it"],
    ]


def test_earlier_attempts() -> None:
    lost = [
        start(["gpu-1", "gpu-2"]),
        event("requeue", 29, reason="gpu-2: lost", attempt=1),
        event("end", 30, exit_code=71, source="slurmray", kind="node_lost", node="gpu-2", text="failed"),
    ]
    page = Page(render([start(["gpu-1"], attempt=2), END], earlier=(lost, [])))
    assert page.rows("attempt") == [
        ["0", "2025-11-26 01:20:00 UTC", "30.0 s", "gpu-[1-2]", "failed", "gpu-2: lost"],
        ["1", "not recorded"],
    ]
    assert "Slurm was asked to start the job again: gpu-2: lost" in Page(render(lost, "PENDING")).text


REASON = "restart 1 of 3: gpu-2: no heartbeat for 25 s; gpu-3 takes the place of gpu-2"
REPLACED = [
    {**start(["gpu-1", "gpu-2"]), "spares": ["gpu-3"]},
    event("nodes", 10, step="ray", nodes=["gpu-1", "gpu-2"], gpus=8),
    event("trainer", 60, command="python3 train.py"),
    event("restart", 3660, restart=1, nodes=["gpu-1", "gpu-3"], spares=[], failed=["gpu-2"], text=REASON),
    event("nodes", 3670, step="ray", nodes=["gpu-1", "gpu-3"], gpus=8),
    event("trainer", 4020, command="python3 train.py"),
]


def test_a_trainer_that_was_started_again() -> None:
    """Each start has a bar without and one with the trainer; of failures the page has the cost."""
    end = {**END, "time": T0 + 7620}
    page = Page(render([*REPLACED, end]))
    assert page.rows("start") == [
        ["attempt 0", "2025-11-26 01:20:00 UTC", "gpu-[1-2]", "gpu-3", "60.000", "3600.000", "gpu-2"],
        ["restart 1", "2025-11-26 02:21:00 UTC", "gpu-[1,3]", "", "360.000", "3600.000", ""],
    ]
    assert page.rows("ended") == [
        ["2025-11-26 02:21:00 UTC", "gpu-2", REASON, "1 h 0 min, 24.00 GPU hours", "6 min, 2.40 GPU hours"],
    ]
    text = " ".join(page.text.split())
    assert "cost at most 26.40 of 50.80 GPU hours: at most 24.00 of trainers that were cut off" in text
    assert "Times from the last restart, 2025-11-26 02:21:00 UTC" in page.text
    idle, lost, waiting, trained = page.all("rect")[-4:]
    assert [bar["class"] for bar in (idle, lost, waiting, trained)] == ["idle", "lost", "idle", "trained"]
    places = [float(bar["x"] or "") for bar in (idle, lost, waiting, trained)]
    assert places[1] - places[0] == pytest.approx((places[3] - places[2]) / 6, abs=0.2)
    assert places[1] + float(lost["width"] or "") == pytest.approx(places[2], abs=0.11)
    assert "restart 1: 6 min without the trainer, 1 h 0 min with it" in page.text


def account_bars(page: Page) -> list[str]:
    return [style for bar in page.all("div", "bar") if "margin" not in (style := bar["style"] or "")]


def test_the_account() -> None:
    """Its rows add up to the hours that the page names, and bars have their parts."""
    end = {**END, "time": T0 + 7620}
    page = Page(render([*REPLACED, end]))
    rows = {row[0]: row[1] for row in page.rows("use", "GPU hours")}
    assert rows == {
        "bring-up": "2.80",
        "training": "16.00",
        "idle": "not known",
        "lost": "24.00",
        "spare": "8.00",
        "sum": "50.80",
        "queue": "not known",
    }
    assert "of 50.80 GPU hours" in " ".join(page.text.split())
    assert account_bars(page) == ["width:5.51%", "width:31.5%", "width:47.24%", "width:15.75%"]
    status = make_status(7, "RUNNING", RECORD, REPLACED, T0)
    account = Account("node hours", 0.0, 0.0, 0.0, 0.0, 0.0, 2.5)
    page = Page(render_report(status, REPLACED, [], "", T0, {}, account))
    assert {row[0]: row[1] for row in page.rows("use", "node hours")}["queue"] == "2.50"
    assert account_bars(page) == []


def test_failures_of_nodes_without_gpus() -> None:
    events = [{**each, "gpus": 0} if "gpus" in each else each for each in REPLACED]
    page = Page(render(events, "RUNNING"))
    assert page.rows("ended")[0][3:] == ["1 h 0 min", "6 min"]
    assert "GPU hours" not in page.text
    assert "Failures of nodes" not in Page(render([start(["gpu-1"]), END])).text


def test_the_next_attempt_waits_because_of_the_node_that_was_lost() -> None:
    failed = event(
        "end", 1860, exit_code=71, source="slurmray", kind="node_lost", node="gpu-2", text="failed"
    )
    first = [*REPLACED[:3], event("requeue", 1860, reason="gpu-2: lost", attempt=1), failed]
    later = [{**each, "time": each["time"] + 9000} for each in REPLACED[:3]]
    page = Page(render([{**later[0], "attempt": 1}, *later[1:]], "RUNNING", (first,)))
    assert [row[0] for row in page.rows("start")] == ["attempt 0", "attempt 1"]
    assert page.rows("ended")[0][1:] == [
        "gpu-2",
        "failed",
        "30 min, 12.00 GPU hours",
        "1 min, 0.40 GPU hours",
    ]


def test_settings_have_no_values_of_variables() -> None:
    """Neither those of services, of Ray's runtime environment and of the command that renders the script."""
    spec = slurmray.JobSpec(
        name="x",
        launch="ray-job",
        slurm={"nodes": 3},
        env={"NCCL_DEBUG": "value-1"},
        services=[{"name": "s", "run": ["a", "--token", "value-7", "b"], "env": {"B": "value-2"}}],
        ray={"runtime_env": {"env_vars": {"C": "value-3"}, "pip": ["numpy"], "numbers": [1, 2], "env": 1}},
        node_env="export HF_TOKEN=value-4",
        run="API_KEY='value-5 x' python3 train.py --api-key=value-6 data.prompt_key=shown",
    )
    from slurmray.rendering.script import render_script

    script = render_script(plan_of(spec), "slurmray render --env NCCL_DEBUG=value-1")
    for number in range(1, 8):
        assert f"value-{number}" in script
    page = render([start(["a"]), END], text=script)
    assert "value-" not in page
    for shown in ("NCCL_DEBUG", "numpy", "data.prompt_key=shown"):
        assert shown in page
    assert "Not available" not in page


def test_secrets_in_texts_of_the_events() -> None:
    text = "t --token=hunter2"
    loss, requeue = event("node_loss", 7, node="a", text=text), event("requeue", 8, reason=text, attempt=1)
    row = {"kind": "preflight", "check": "x", **dict.fromkeys(("found", "wanted", "fix"), text)}
    end = event("end", 90, exit_code=66, source="slurmray", kind="preflight", node="a", text=text)
    events = [start(["a"]), event("finding", 1, node="a", **row), event("trainer", 6, command=text), loss]
    events += [requeue, end]
    page = render(events, "FAILED", earlier=(events,))
    assert "hunter2" not in page
    assert page.count("--token=...") >= 10


@pytest.mark.parametrize(
    "text",
    [
        "WANDB_API_KEY=<abc> python",
        "--token=<abc> --lr=1",
        "secret_key=<'a b'> c",
        "t.py --hf-token <abc> --api_key <'a b'> -v",
        "--use-token --lr 1 --tokenizer x",
        "git clone https://me:<abc>@host/x",
        "curl -H 'Authorization: <Bearer abc>' u",
        "curl -H 'X-Api-Key: <abc>' u",
        "t --x-key <abc> --api-key=<abc> --lr=1",
        """t '{"api_key": "<a b\\"c>", "lr": 1}'""",
        *(
            f"{name}=<abc> {name}_x=<abc> pre{name}=1"
            for name in (
                *("api_key", "apikey", "access_key", "secretkey", "private_key", "auth_key"),
                *("token", "secret", "password", "passwd", "credential", "credentials"),
            )
        ),
        "KEY=<abc> SSH_KEY_1=<abc> MONKEY=1",
        "--key <abc> --my-key=<abc> --key -v",
        """token=<"a 'b"> password=<'it'\\''s a'\\ "b\\"c"> d""",
        "pip install git+HTTPS://<abc>@host/x ssh://<git>@host",
        """'http://host','a@b' --key-file x""",
        "redis://:<a@b>@host/0 'ftp://me:<a>@host' b@c",
        'curl -H "authorization: <ApiKey abc>" -H "Proxy-Authorization:<abc>" u',
        "X-Auth-Token: <abc>\nX-Secret: <abc>\npassword: <abc>",
        f"-H 'X-{'a-' * 99}Token: <abc>' -ihttps://a:<abc>@host --{'a-' * 99}token <abc>",
        """the hf-token <abc> (--a.b-key=<abc)> '{"a.b_c.d-token_of_x": "<abc>"}'""",
        "max_tokens=4096 reward_fn_key=x KEYS=1",
    ],
)
def test_secrets_in_commands(text: str) -> None:
    """What is marked is hidden."""
    assert hide(re.sub("[<>]", "", text)) == re.sub("<.*?>", "...", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            """t "{\\"api_key\\": \\"a'b\\", 'token': 'a "b', \\"lr\\": 1}\"""",
            """t "{\\"api_key\\": "...", 'token': "...", \\"lr\\": 1}\"""",
        ),
        (
            """'{"Authorization": "a b", "a.token_1": 1}'""",
            """'{"Authorization": "...", "a.token_1": "..."}'""",
        ),
    ],
)
def test_secrets_with_other_quotes(text: str, expected: str) -> None:
    assert hide(text) == expected


@pytest.mark.attack("a log made to be slow, or large", inputs=1)
@pytest.mark.parametrize(
    "part", ["a", "0123456789abcdef", "-a", "a-", "a.", "KEY_", "token_", "-token", "a+", "://a:"]
)
def test_a_long_text_without_secrets(part: str) -> None:
    """As an argument or a text of an event may be."""
    text = f"'{part * ((1 << 18) // len(part))} "
    assert hide(text) == text


def test_a_page_names_its_program_and_allows_no_script() -> None:
    text = render([])
    assert GENERATOR in text[:500]
    (policy,) = [meta["content"] for meta in Page(text).all("meta") if "http-equiv" in meta]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def luminance(color: str) -> float:
    """As in WCAG 2.1."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast() -> None:
    """4.5 for text and 3 for bars, in the light and in the dark (WCAG 2.1, AA)."""
    template = (data_folder("templates") / "report.html.j2").read_text()
    schemes = [dict(re.findall(r"--(\w+): (#\w{6});", part)) for part in template.split("@media")]
    assert len(schemes) == 2
    for colors in schemes:
        for name, color in colors.items():
            low, high = sorted((luminance(color), luminance(colors["page"])))
            wanted = 4.5 if name in ("text", "muted", "good", "bad", "warn") else 3.0
            assert name in ("page", "panel", "line") or (high + 0.05) / (low + 0.05) >= wanted, name
