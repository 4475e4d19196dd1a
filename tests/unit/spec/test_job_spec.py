"""The job spec from Python values: defaults, conversions and refusals."""

from typing import Any

import pytest

from slurmray.errors import SpecError, UsageError
from slurmray.slurm import syntax
from slurmray.spec.container import DEFAULT_IMAGE
from slurmray.spec.fields import JobFields
from slurmray.spec.job_spec import JobSpec


def spec(**fields: Any) -> JobSpec:
    return JobSpec(**fields)


def refusal(**fields: object) -> str:
    with pytest.raises(SpecError) as caught:
        spec(**fields)
    return str(caught.value)


def service(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "run": "x", **fields}


def test_defaults() -> None:
    job = spec()
    assert (job.name, job.run, job.gpus, job.env) == ("slurmray", None, 0, {})
    assert job.container.image == DEFAULT_IMAGE
    assert list(job.slurm.given()) == [("nodes", "1")]


@pytest.mark.parametrize("name", ["python3 train.py", "python3 /data/train.py --lr 1", "my-trainer --lr 1"])
def test_a_command_in_one_item(name: str) -> None:
    text = f"{name!r} is one program's name; write one item per argument, or a text for bash"
    assert refusal(run=[name, "--seed", "1"]) == f"run: {text}"
    assert refusal(prepare=[{"name": "data", "run": [name]}]) == f"prepare, item 1, run: {text}"


@pytest.mark.parametrize("path", ["/opt/my tools/train", "./my tools/train", "my tools/train", "python3"])
def test_a_program_whose_path_may_have_blanks(path: str) -> None:
    assert spec(run=[path, "a b"]).run == [path, "a b"]


@pytest.mark.parametrize(
    "run", ["set -- 'FILL IN: $1 (MODEL)'\npython train.py", ["python", "FILL IN: $1 (MODEL)"]]
)
def test_what_the_user_has_to_fill_in(run: list[str] | str) -> None:
    assert refusal(run=run) == "run: has 'FILL IN: $1 (MODEL)', from slurmray init: write your own there"


def test_null_means_not_set() -> None:
    assert spec(name=None, slurm=None, container={"image": None}, run=None) == spec()


def test_python_values_mean_the_same_as_their_text() -> None:
    assert spec(slurm={"nodes": 2, "gpus_per_node": 8, "nice": 5, "hold": True}) == spec(
        slurm={"nodes": "2", "gpus_per_node": "8", "nice": "5", "hold": "true"}
    )


def test_every_option_of_sbatch_is_a_field_and_arrives() -> None:
    samples: dict[str, str | None] = {
        **{"nodes": "2", "cpus-per-task": "4", "gpus-per-node": "h100:8", "gres": "nvme:1"},
        "exclusive": "user",
        "array": "0-3%2",
    }
    values = {"flag": None, "time": "1-0", "size": "2G"}
    wanted: dict[str, str | None] = {
        name: samples.get(name, values.get(option.kind, "x")) for name, option in syntax.OPTIONS.items()
    }
    for name in ("extra", "mem-per-cpu", "mem-per-gpu", "cpus-per-gpu"):  # others exclude them
        del wanted[name]
    fields = {name.replace("-", "_"): "true" if value is None else value for name, value in wanted.items()}
    assert dict(spec(slurm=fields).slurm.given()) == wanted


def test_an_optional_value_may_be_a_switch() -> None:
    assert ("exclusive", None) in spec(slurm={"exclusive": "true"}).slurm.given()
    assert ("exclusive", "user") in spec(slurm={"exclusive": "user"}).slurm.given()
    assert ("oom-kill-step", "0") in spec(slurm={"oom_kill_step": "0"}).slurm.given()
    assert spec(slurm={"exclusive": "false", "hold": "false"}).slurm == spec().slurm


def test_extra_comes_last_and_once() -> None:
    job = spec(slurm={"time": "2:00", "extra": ["--site=a=b", "--flag"]})
    assert list(job.slurm.given()) == [("nodes", "1"), ("time", "2:00"), ("site", "a=b"), ("flag", None)]
    assert "--time is set twice" in refusal(slurm={"time": "1:00", "extra": ["--time=2:00"]})
    assert "--x is set twice" in refusal(slurm={"extra": ["--x", "--x"]})


def test_gpus() -> None:
    assert spec(slurm={"gpus_per_node": "h100:8"}).gpus == 8
    assert spec(slurm={"gres": "gpu:h100:4,nvme:1"}).gpus == 4
    assert spec(slurm={"gres": "nvme:1", "gpus_per_node": "2"}).gpus == 2
    assert "both request GPUs" in refusal(slurm={"gpus_per_node": "8", "gres": "gpu:8"})
    assert "expected a number" in refusal(slurm={"gpus_per_node": "many"})


def test_gpus_that_slurm_does_not_count() -> None:
    job = spec(ray={"gpus_per_node": 4}, slurm={"gres": "nvme:1"})
    assert job.gpus == 4
    assert list(job.slurm.given()) == [("gres", "nvme:1"), ("nodes", "1")]
    assert "use one of them" in refusal(slurm={"gpus_per_node": "8"}, ray={"gpus_per_node": 8})
    text = refusal(ray={"gpus_per_node": 4}, services=[service(gpus=5)])
    assert "a node has 4" in text
    assert "request more with ray.gpus_per_node" in text
    assert "more than one type" in refusal(slurm={"gres": "gpu:a:1,gpu:b:1"})


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"setup": "a\0b"},
        {"run": []},
        {"run": " "},
        {"run": ["a", ["b"]]},
        {"run": ["a\0"]},
        {"run": ["\udcff"]},
        {"env": {"A-B": "1"}},
        {"env": {"1A": "1"}},
        {"env": {"É": "1"}},
        {"env": {"A": "a\0b"}},
        {"slurm": {"time": "1\n2"}},
        {"slurm": {"nodes": "2.0"}},
        {"slurm": {"nodes": True}},
        {"slurm": {"cpus_per_task": 0}},
        {"container": {"image": "a b"}},
        {"container": {"image": "--rm"}},
        {"services": [{"name": "a", "run": "b", "image": "x:y:z"}]},
        {"container": {"user": "root"}},
        {"container": {"workdir": "x"}},
        *({"container": {"python": wrong}} for wrong in ("bin/python3", "/a:b/python3", "-m", "a b", "")),
        *(
            {"slurm": {"array": wrong}}
            for wrong in ("a", "0-", "-3", "0-3%0", "0-3:0", "0 - 3", "0-3%2,4", "[0-3]")
        ),
        {"slurm": {"extra": ["--array=0-3"]}},
        {"container": {"mounts": ["a:x"]}},
        {"container": {"setup_timeout": 0}},
        {"container": {"runtime": "none", "setup": "true"}},
        {"container": {"stage": "shared", "pull": "never"}},
        {"container": {"stage": "shared", "archive": "image.tar"}},
        *({"container": {"runtime": name, "stage": "shared"}} for name in ("apptainer", "pyxis", "none")),
        {"network": {"subnet": "10.3.0.1/16"}},
        {"network": {"subnet": "10.3.0.0/33"}},
        {"network": {"subnet": "ib0"}},
        {"network": {"subnet": "10.3.0.0/16", "family": "ipv6"}},
        {"ray": {"keep_logs": "sometimes"}},
        {"env_file": ""},
        {"node_env": "a\0b"},
        {"container": {"shm_size": "64 GB"}},
        {"container": {"ulimits": ["memlock"]}},
        {"container": {"mounts": ["a:/x", "b:/x/"]}},
        {"container": {"build": {"file": "f"}}},
        {"template": ""},
        {"template": "a\nb"},
        {"ray": {"port": 1023}},
        {"ray": {"port": 65536}},
        {"ray": {"port": 7000, "dashboard_port": 7000}},
        {"ray": {"temp_dir": "tmp"}},
        {"ray": {"temp_dir": "/t:mp"}},
        {"ray": {"temp_dir": "/" + "a" * 18}},
        {"ray": {"ready_timeout": 0}},
        {"heartbeat_timeout": 9},
        {"ray": {"head_args": ["--port=1"]}},
        {"ray": {"debug": "both"}},
        {"ray": {"start": "slow"}},
        {"ray": {"runtime_env": "e.yaml"}},
        {"launch": "ray-job", "ray": {"runtime_env": ""}},
        {"launch": "ray-job", "ray": {"runtime_env": "a\nb"}},
        {"launch": "ray-job", "ray": {"runtime_env": ["a"]}},
        {"launch": "ray-job", "ray": {"runtime_env": {"env_vars": {"A": None}}}},
        {"launch": "ray-job", "ray": {"runtime_env": {"env_vars": {"A": True}}}},
        {"launch": "ray-job", "ray": {"runtime_env": {"pip": ["a\0"]}}},
        {"launch": "ray-job", "ray": {"runtime_env": {"a\0": "b"}}},
        {"launch": "ray-job", "ray": {"runtime_env": {"config": {"setup_timeout_seconds": "soon"}}}},
        {"launch": "submit"},
        {"stop": {"signal": "KILL"}},
        {"stop": {"grace": -1}},
    ],
)
def test_refused(fields: dict[str, object]) -> None:
    assert refusal(**fields)


@pytest.mark.parametrize(
    "image",
    [
        "x:y:z",
        "a/x:y:z",
        "x:",
        ":x",
        "a//b",
        "/".join("ab") + "/",
        "host:port/x",
        "x@",
        "h:1:2/x",
    ],
)
@pytest.mark.parametrize("runtime", ["auto", "apptainer", "pyxis"])
def test_what_can_be_no_reference_of_an_image(image: str, runtime: str) -> None:
    container = {"runtime": runtime, "image": image}
    assert "container.image: expected [HOST[:PORT]/]NAME[:TAG] or NAME@DIGEST" in refusal(container=container)


@pytest.mark.parametrize(
    ("runtime", "image"),
    [
        *(
            (runtime, image)
            for runtime in ("auto", "podman", "docker", "apptainer", "singularity", "pyxis")
            for image in (
                *("x", "x:y", "a/x", "a/b/c:d", "localhost/x:1", "localhost:5000/x", "Host.org:5000/a/x:V1"),
                *("[::1]:5000/x:1", f"x@sha256:{'0a' * 32}", f"host:5000/a/x:1@sha256:{'0a' * 32}"),
                *(f"sha256:{'0a' * 32}", "docker:24", "a/b:c#d"),
            )
        ),
        *(
            ("apptainer", image)
            for image in (
                *("./box", "../box", "~/box", "/box:1:2", "ray.sif", "images/ray.sif", "dir:/x"),
                *("oci-archive:images/x.tar", "docker://host:5000/x:1", "docker-archive:x.tar:ref:tag"),
                "library://a/b/c:d",
            )
        ),
        *(
            ("pyxis", image)
            for image in ("nvcr.io#nvidia/x:1", "me@nvcr.io#nvidia/x:1", "me@x:1", "me@a/x", "./x.sqsh")
        ),
    ],
)
def test_every_form_that_a_runtime_takes_for_an_image(runtime: str, image: str) -> None:
    assert spec(container={"runtime": runtime, "image": image}).container.image == image


def test_ray_options_of_ours_name_the_field() -> None:
    assert "use slurm.cpus_per_task" in refusal(ray={"args": ["--num-cpus", "4"]})
    assert spec(ray={"args": ["--num-cpus-of-mine", "--resources={}"]}).ray.args[1] == "--resources={}"


def test_a_runtime_environment_has_the_types_that_ray_wants() -> None:
    written = {
        "working_dir": "./",
        "excludes": ["/.git/"],
        "env_vars": {"A": "1", "pip_check": "true"},
        "pip": {"packages": ["x==1"], "pip_check": "false"},
        "config": {"setup_timeout_seconds": "60", "eager_install": "True"},
        "nsight": {"stop-on-exit": "true"},
    }
    content = spec(launch="ray-job", ray={"runtime_env": written}).ray.runtime_env
    assert content == {
        **written,
        "pip": {"packages": ["x==1"], "pip_check": False},
        "config": {"setup_timeout_seconds": 60, "eager_install": True},
    }
    given = spec(launch="ray-job", ray={"runtime_env": {"env_vars": {"A": 1}}}).ray.runtime_env
    assert given == {"env_vars": {"A": "1"}}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "RAY_ADDRESS",
            "RAY_AUTH_MODE",
            "RAY_AUTH_TOKEN",
            "RAY_OVERRIDE_RESOURCES",
            "NNODES",
            "MASTER_PORT",
        ),
        *(f"SLURMRAY_{name}" for name in ("ATTEMPT", "RESTART", "RUN_DIR", "TEMP")),
        *("SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID"),
    ],
)
def test_variables_that_are_slurmray_s(name: str) -> None:
    assert f"{name} is set by slurmray: " in refusal(env={name: "x"})


def test_a_variable_as_known_in_the_job() -> None:
    assert spec(env={"SLURM_JOB_ID": None}).env_from_submitter == ["SLURM_JOB_ID"]


@pytest.mark.parametrize(
    "url",
    ["https://hooks.slack.com/services/T0-secret", "T0-secret", "$T0-secret", "env:T0-secret", "env:", ""],
)
def test_the_url_of_a_webhook_is_not_in_the_job_spec(url: str) -> None:
    text = refusal(notify={"url": url})
    assert text.startswith("notify.url: expected env:NAME, e.g. env:SLACK_WEBHOOK, ")
    assert "secret-" not in text
    assert "T0" not in text


def test_notices() -> None:
    job = spec(notify={"url": "env:HOOK"}, env={"KEY": None, "HOOK": None})
    assert job.submitter_variables == {"KEY": "env.KEY", "HOOK": "env.HOOK"}
    assert spec(notify={"url": "env:HOOK"}).submitter_variables == {"HOOK": "notify.url: HOOK"}
    assert job.notify
    assert job.notify.on == ["start", "stall", "loss", "end"]
    assert refusal(notify={"url": "env:HOOK", "on": []}) == "notify.on: is empty; leave notify out"
    assert refusal(notify={"on": ["end"]}) == "notify.url: is required"
    assert "loss or end, got 'restart'" in refusal(notify={"url": "env:A", "on": ["restart"]})


@pytest.mark.parametrize(("time", "lead"), [("1:00", 60), ("2", 120), ("0-00:01", 61)])
def test_a_warning_before_the_start(time: str, lead: int) -> None:
    assert "is not less than slurm.time" in refusal(slurm={"time": time}, stop={"lead": lead})
    assert spec(slurm={"time": time}, stop={"lead": lead - 2}).stop.lead == lead - 2


def test_a_runtime_environment_needs_the_job_api() -> None:
    assert "needs ray-job; with exec, pass it to ray.init()" in refusal(ray={"runtime_env": {"pip": ["x"]}})


@pytest.mark.parametrize(
    ("debug", "env"),
    [
        ("post-mortem", {"RAY_DEBUG": "legacy"}),
        ("post-mortem", {"RAY_DEBUG": "0"}),
        ("legacy", {"RAY_DEBUG_POST_MORTEM": "1"}),
        ("none", {"RAY_DEBUG": "legacy"}),
        ("none", {"RAY_DEBUG": None}),
        ("none", {"RAY_DEBUG_POST_MORTEM": "1"}),
    ],
)
def test_one_debugger_at_a_time(debug: str, env: dict[str, str | None]) -> None:
    (name,) = env
    assert f"{name} is in env; remove it and use ray.debug" in refusal(ray={"debug": debug}, env=env)


def test_breakpoints_can_be_turned_off_and_the_old_option_has_a_name() -> None:
    assert spec(env={"RAY_DEBUG": "0"}).env == {"RAY_DEBUG": "0"}
    assert "use ray.debug: legacy" in refusal(ray={"worker_args": ["--ray-debugger-external"]})


def test_longest_temp_dir() -> None:
    assert spec(ray={"temp_dir": "/" + "a" * 17}).ray.temp_dir == "/" + "a" * 17


def test_paths_with_variables_are_checked_on_the_nodes() -> None:
    path = "$SLURM_TMPDIR/a-long-name-of-a-folder"
    job = spec(
        run_dir=path,
        ray={"temp_dir": path},
        container={"workdir": path, "mounts": [f"{path}:$HOME/x:ro"], "runtime": "apptainer", "image": path},
    )
    assert job.container.mounts[0] == (path, "$HOME/x", ("ro",))
    assert "needs runtime apptainer" in refusal(container={"image": path})


def test_nothing_changes_afterwards() -> None:
    for part, name in ((spec(), "name"), (spec().slurm, "nodes"), (spec().container, "imago")):
        with pytest.raises(UsageError, match=rf"{name}: a job spec does not change; use model_copy\("):
            setattr(part, name, "x")


def test_a_copy_is_a_valid_job_spec() -> None:
    job = spec(name="a", slurm={"nodes": 2}, env={"A": None})
    assert job.model_copy(update={"name": "b", "slurm": {"nodes": "3"}}) == spec(
        name="b", slurm={"nodes": 3}, env={"A": None}
    )
    assert job.model_copy() == job
    with pytest.raises(SpecError, match="slrum: unknown field, did you mean slurm"):
        job.model_copy(update={"slrum": {}})
    with pytest.raises(SpecError, match="9 are more than the 0 of the head node"):
        job.model_copy(update={"ray": {"head": {"gpus": 9}}})


def test_mistakes_from_pydantic_s_own_methods() -> None:
    for make in (JobSpec.model_validate, JobSpec.model_validate_strings):
        with pytest.raises(SpecError, match="slrum: unknown field"):
            make({"slrum": "x"})


def test_keyword_arguments_are_the_fields() -> None:
    """They are written down twice, as type checkers do not read pydantic's conversions."""
    assert list(JobFields.__annotations__) == list(JobSpec.model_fields)


@pytest.mark.parametrize(
    ("head", "nodes", "text"),
    [
        ({"gpus": 9}, 2, "ray: head.gpus: 9 are more than the 8 of the head node; leave it out"),
        ({"gpus": 0}, 1, "ray: head.gpus: 0 leaves too few for a trainer; leave it out"),
        ({"memory": "32GB"}, 2, "ray.head.memory: expected a number with K, M, G or T, e.g. 32G, got '32GB'"),
        ({"cpus": -1}, 2, "ray.head.cpus: "),
    ],
)
def test_what_a_head_node_cannot_offer(head: dict[str, Any], nodes: int, text: str) -> None:
    assert text in refusal(slurm={"nodes": nodes, "gpus_per_node": 8}, ray={"head": head})


@pytest.mark.parametrize(
    ("head", "gpus", "nodes"),
    [({}, 8, 3), ({"gpus": 0}, 8, 2), ({"gpus": 8}, 8, 3), ({"gpus": 0}, 0, 3), ({"cpus": 0}, 0, 3)],
)
def test_nodes_that_the_trainer_counts(head: dict[str, Any], gpus: int, nodes: int) -> None:
    job = spec(slurm={"nodes": 3, **({"gpus_per_node": gpus} if gpus else {})}, ray={"head": head})
    assert job.trainer_nodes == nodes


@pytest.mark.parametrize(
    ("services", "nodes", "head", "expected"),
    [
        ([], 3, None, (8, 8, 3)),
        ([(2, "all")], 3, None, (6, 6, 3)),
        ([(2, "head")], 3, None, (8, 6, 2)),
        ([(8, "head")], 3, None, (8, 0, 2)),
        ([(2, "workers")], 3, None, (6, 6, 3)),
        ([(2, "workers"), (2, "head")], 3, None, (6, 6, 3)),
        ([(1, "all"), (2, "head")], 3, None, (7, 5, 2)),
        ([(2, "all")], 3, 0, (6, 0, 2)),
        ([(2, "head"), (1, "all")], 1, None, (5, 5, 1)),
        ([(8, "all")], 3, None, (0, 0, 3)),
        ([(8, 1)], 3, None, (8, 8, 2)),
        ([(8, 2)], 3, None, (8, 8, 1)),
        ([(4, 1), (4, 2)], 4, None, (8, 8, 2)),
        ([(4, 1), (2, "all"), (2, "workers")], 4, None, (4, 4, 3)),
        ([(4, 1)], 4, 0, (8, 0, 2)),
    ],
)
def test_gpus_by_role(
    services: list[tuple[int, str]], nodes: int, head: int | None, expected: tuple[int, int, int]
) -> None:
    """expected: GPUs of workers and of the head node for Ray, and nodes that the trainer counts."""
    job = spec(
        slurm={"nodes": nodes, "gpus_per_node": 8},
        ray={"head": {"gpus": head}},
        services=[
            service(name=f"s{number}", gpus=gpus, where=where)
            for number, (gpus, where) in enumerate(services)
        ],
    )
    assert (job.ray_gpus, job.head_gpus, job.trainer_nodes) == expected


def test_gpus_that_services_cannot_have() -> None:
    def services(*places: tuple[int, str]) -> list[dict[str, Any]]:
        return [service(name=where, gpus=gpus, where=where) for gpus, where in places]

    slurm = {"nodes": 2, "gpus_per_node": 8}
    assert spec(slurm=slurm, services=services((5, "head"), (5, "workers"))).head_gpus == 3
    text = "they use workers 5 + all 4 = 9 GPUs, a node has 8: give them fewer"
    assert text in refusal(slurm=slurm, services=services((5, "head"), (5, "workers"), (4, "all")))
    text = "services: workers: 1 node in Ray leaves no workers; use where: all"
    assert text in refusal(slurm={"nodes": 1, "gpus_per_node": 8}, services=services((5, "workers")))


@pytest.mark.parametrize("name", ["SLURMRAY_TEMP", "SLURM_JOB_ID"])
def test_variables_by_which_clean_up_finds_a_service(name: str) -> None:
    text = f"services, item 1, env: {name}: leave it out; clean-up finds processes by it"
    assert text in refusal(services=[service(env={name: "x"})])


@pytest.mark.parametrize("place", [{"host": True}, {"image": "a"}])
def test_a_service_that_needs_ray_is_in_its_container(place: dict[str, Any]) -> None:
    text = "needs_ray is for services in Ray's container: leave host and image out"
    assert text in refusal(services=[service(needs_ray=True, **place)])


@pytest.mark.parametrize(
    ("fields", "nodes", "text"),
    [
        ({"where": 3}, 3, "a: where: 3 of 3 nodes leaves none for Ray; raise slurm.nodes"),
        ({"where": "4", "shared": True}, 3, "a: where: 4 of 3 nodes leaves none for Ray"),
        ({"where": 0}, 3, "expected head, workers, all or a number of nodes, got '0'"),
        ({"where": "some"}, 3, "expected head, workers, all or a number of nodes, got 'some'"),
        ({"where": 1, "needs_ray": True}, 3, "needs_ray is for nodes in Ray: set shared: true"),
        ({"where": "all", "shared": True}, 3, "shared is for a number of nodes in where"),
        ({"where": 1, "shared": True, "gpus": 1}, 3, "Ray has the same number on all workers"),
        ({"where": 1, "gpus": 9}, 3, "they use a 9 = 9 GPUs, a node has 8"),
        ({"where": "workers"}, 1, "a: 1 node in Ray leaves no workers; use where: all"),
    ],
)
def test_nodes_of_services(fields: dict[str, Any], nodes: int, text: str) -> None:
    message = refusal(slurm={"nodes": nodes, "gpus_per_node": 8}, services=[service(**fields)])
    assert text in message, message


def test_shared_nodes_of_services_are_in_ray() -> None:
    job = spec(slurm={"nodes": 3}, services=[service(where=3, shared=True, needs_ray=True)])
    assert (job.ray_nodes, job.trainer_nodes, job.services[0].where) == (3, 3, 3)


CPU_HEAD = {"name": "head", "nodes": 1, "cpus_per_task": 16}
GPU_NODES = {"name": "gpu", "nodes": 4, "gpus_per_node": 8, "partition": "h100"}
BOTH = {"groups": [CPU_HEAD, GPU_NODES]}


def test_groups_have_the_options_of_the_section_that_they_do_not_set() -> None:
    slurm = {"partition": "batch", "mem": "1G", "exclusive": True, "time": "1:00:00", "cpus_per_task": 2}
    quick = {**GPU_NODES, "exclusive": False, "mem": None}
    job = spec(slurm={**slurm, "groups": [{**CPU_HEAD, "mem": None}, quick]})
    head, gpu = (dict(group.given()) for group in job.slurm.groups)
    assert head == {"nodes": "1", "cpus-per-task": "16", "partition": "batch", "exclusive": None}
    assert gpu == {"nodes": "4", "cpus-per-task": "2", "gpus-per-node": "8", "partition": "h100"}
    assert job.model_copy() == job


@pytest.mark.parametrize(
    ("groups", "more", "expected"),
    [
        ([CPU_HEAD, GPU_NODES], {}, (5, 8, 0, 8, 5, 4)),
        ([GPU_NODES, CPU_HEAD], {}, (5, 8, 8, 8, 5, 4)),
        ([CPU_HEAD, {"name": "more"}], {}, (2, 0, 0, 0, 2, 2)),
        ([{**GPU_NODES, "nodes": 1}, {"name": "cpu", "nodes": 2}], {}, (3, 8, 8, 8, 3, 1)),
        ([CPU_HEAD, GPU_NODES], {"services": [service(where=1, gpus=8)]}, (5, 8, 0, 8, 4, 3)),
        (
            [{**GPU_NODES, "nodes": 1}, CPU_HEAD],
            {"services": [service(where="head", gpus=2)]},
            (2, 8, 6, 6, 2, 1),
        ),
        ([{**GPU_NODES, "nodes": 2}, CPU_HEAD], {"ray": {"head": {"gpus": 0}}}, (3, 8, 0, 8, 3, 1)),
    ],
)
def test_gpus_of_groups(
    groups: list[dict[str, Any]], more: dict[str, Any], expected: tuple[int, ...]
) -> None:
    """Nodes, GPUs of a node, GPUs for Ray on the head node and on others, nodes in Ray and of the trainer."""
    job = spec(slurm={"groups": groups}, **more)
    gpus = (job.gpus, job.head_gpus, job.ray_gpus)
    assert (job.slurm.node_count, *gpus, job.ray_nodes, job.trainer_nodes) == expected


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([GPU_NODES], "slurm: groups: one group is a job without groups; move its fields"),
        ([CPU_HEAD, CPU_HEAD], "slurm: two groups are called head; rename one"),
        (
            [{**GPU_NODES, "name": "a", "gpus_per_node": "4"}, GPU_NODES],
            "slurm: groups: nodes with 4 and 8 GPUs; trainers count nodes with the same number",
        ),
        (
            [{**CPU_HEAD, "account": "cpu"}, GPU_NODES],
            "slurm: groups: account of head would be that of gpu, too: Slurm passes it on; set it in both",
        ),
        ([{**CPU_HEAD, "time": "1:00"}, GPU_NODES], "item 1, time: unknown field, did you mean slurm.time?"),
        ([{**CPU_HEAD, "ntasks": 1}, GPU_NODES], "slurmray starts one task on each node; leave it out"),
        ([{**CPU_HEAD, "name": "a b"}, GPU_NODES], "expected up to 32 letters, digits and _ . -"),
        ([{"nodes": 1}, GPU_NODES], "slurm.groups, item 1, name: is required"),
    ],
)
def test_groups_that_are_refused(groups: list[dict[str, Any]], text: str) -> None:
    assert text in refusal(slurm={"groups": groups})


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"slurm": {**BOTH, "nodes": 5}}, "slurm: nodes: each group has its own; leave it out"),
        ({"slurm": {**BOTH, "array": "0-3"}}, "slurm: array: Slurm has none of jobs with groups"),
        ({"ray": {"gpus_per_node": 8}}, "gpus_per_node is of all nodes"),
        ({"on_node_loss": "continue"}, "on_node_loss: Slurm ends a job"),
        ({"spares": 1}, "spares: each group has its own; set it"),
        (
            {"restart": {"min_nodes": 1}},
            "restart: min_nodes: the groups of a job have fixed numbers of nodes; leave it out",
        ),
        ({"ray": {"head": {"gpus": 1}}}, "head.gpus: 1 are more than the 0 of the head node"),
        ({"services": [service(where="all", gpus=1)]}, "they use a 1 = 1 GPUs, a node has 0"),
        (
            {"services": [service(image="b")], "container": {"runtime": "pyxis"}},
            "a: image is not possible with pyxis and slurm.groups",
        ),
        (
            {"slurm": {"nodes": 2}, "restart": {"min_nodes": 3}, "on_node_loss": "restart"},
            "restart: min_nodes: 3 is more than slurm.nodes, 2; lower it",
        ),
        (
            {"slurm": {"nodes": 2}, "restart": {"min_nodes": 1}, "spares": 1},
            "on_node_loss: restart.min_nodes needs restart; set it to restart, or leave min_nodes out",
        ),
    ],
)
def test_fields_that_do_not_fit_to_the_nodes(fields: dict[str, Any], text: str) -> None:
    """slurm: two groups, unless it is given."""
    assert text in refusal(**{"slurm": BOTH, **fields})


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ('--resources={"GPU": 1}', "--resources: GPU: use slurm.gpus_per_node, or ray.head.gpus"),
        ("--resources", "--resources: expected JSON in the same entry"),
        ("--resources=[1]", "--resources: expected JSON in the same entry"),
    ],
)
def test_resources_that_ray_would_refuse(option: str, text: str) -> None:
    assert text in refusal(ray={"worker_args": [option]})
    assert spec(ray={"args": ['--resources={"disk": 1}']}).ray.args


def test_options_of_sbatch_are_typed() -> None:
    """mypy checks this test, too."""
    spec = JobSpec(name="typed", slurm={"partition": "gpu", "exclusive": "user", "hold": True})
    partition: str | None = spec.slurm.partition
    exclusive: bool | str = spec.slurm.exclusive
    hold: bool = spec.slurm.hold
    assert (partition, exclusive, hold, spec.slurm.account) == ("gpu", "user", True, None)
    groups = [{"name": "cpu", "constraint": "big"}, {"name": "gpu", "gpus_per_node": 8}]
    spec = JobSpec(name="typed", slurm={"groups": groups})
    constraint: str | None = spec.slurm.groups[0].constraint
    assert constraint == "big"


@pytest.mark.parametrize(("given", "seconds"), [("30m", 1800), ("2h", 7200), ("90s", 90), ("90", 90), (0, 0)])
def test_times_with_a_unit(given: str | int, seconds: int) -> None:
    assert JobSpec(watch={"stall": given}).watch.stall == seconds


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"sweep": {"lr": []}}, "sweep: lr is empty; give it values, or leave it out"),
        ({"sweep": {"lr": "1e-6"}}, "sweep.lr: expected a list, got '1e-6'"),
        ({"sweep": {"lr": ["1", 1]}}, "sweep: lr: '1' is there twice; leave it out"),
        ({"sweep": {"actor.lr": [1]}}, "sweep.actor.lr: not a valid name of a variable"),
        ({"sweep": {"lr": [None]}}, "sweep.lr, item 1: expected text, got null"),
        ({"sweep": {"lr": ["a\nb"]}}, "sweep.lr, item 1: has a newline"),
        ({"sweep": {"lr": ["a" * 1001]}}, "has more than 1000 characters; write it to a file"),
        (
            {"sweep": {"a": list(range(40)), "b": list(range(26))}},
            "has 1040 combinations; a sweep has at most",
        ),
        ({"sweep": {"NNODES": [1]}}, "sweep: NNODES is set by slurmray; use another name"),
        ({"sweep": {"SLURM_JOB_ID": [1]}}, "sweep: SLURM_JOB_ID is set by slurmray; use another name"),
        ({"env": {"lr": None}}, "sweep: lr is also in env; leave it out there"),
        ({"slurm": {"array": "0-3"}}, "sweep: sets the indexes of slurm.array, 0-3; leave it"),
        (
            {"sweep": None, "slurm": {"array": "%3"}},
            "sweep: not set, and slurm.array, %3, has no indexes; write e.g. 0-19%3",
        ),
        ({"slurm": {"output": "%x.log"}}, "sweep: slurm.output: all tasks would write to %x.log"),
        ({"run_dir": "/r/${SLURM_JOB_ID}"}, "sweep: run_dir: each task has a folder in it; leave"),
        ({"slurm": BOTH}, "sweep: Slurm has no arrays of jobs with groups; leave sweep or slurm.groups out"),
    ],
)
def test_sweeps_that_cannot_be(fields: dict[str, Any], text: str) -> None:
    """sweep: one of a parameter lr, unless it is given."""
    with pytest.raises(SpecError) as caught:
        spec(**{"sweep": {"lr": ["1e-6", "5e-6"]}, **fields})
    (problem,) = caught.value.problems
    assert text in str(problem)


def test_a_sweep() -> None:
    job = spec(sweep={"lr": [1, "5e-6"]}, slurm={"array": "%1", "output": "%x-%A_%a.log", "error": "%4j.err"})
    assert job.sweep == {"lr": ["1", "5e-6"]}
