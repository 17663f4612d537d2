"""Harbor task folders: read, refused in one line, played in the sandbox, and written."""

import asyncio
import json

import pytest

from wanderlust.cli.main import main
from wanderlust.environment import Limits
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.types import Status, ToolCall, assistant
from wanderlust_repository.harbor import Harbor
from wanderlust_repository.harbor_tasks import NeedsContainer, junit_name, plan_sandbox, read_harbor_task, read_reward

IMAGE = "localhost/wanderlust-test:latest"
"""The image that the fixture `engine` makes."""
FOLDER = {
    "task.toml": '[task]\nname = "us/hello"\n[agent]\ntimeout_sec = 60.0\n[verifier]\ntimeout_sec = 30.0\n'
    '[verifier.env]\nWANTED = "hello world"\n[environment]\ncpus = 1\nmemory = "1G"\nstorage_mb = 100\n',
    "instruction.md": "Write `hello world` into /app/out/hello.txt.\n",
    "environment/Dockerfile": "FROM debian:bookworm-slim\n# a comment\nENV GREETING=hello\nWORKDIR /app\n"
    "RUN mkdir -p out && \\\n    echo ready > ready.txt\nCOPY data/ /app/data/\nCOPY note.txt ./\n",
    "environment/data/a.txt": "a\n",
    "environment/note.txt": "note\n",
    "tests/test.sh": '#!/bin/bash\n[ "$(cat out/hello.txt)" = "$WANTED" ] && r=1 || r=0\n'
    "echo $r > /logs/verifier/reward.txt\n",
    "solution/solve.sh": '#!/bin/bash\ncat ready.txt data/a.txt note.txt && echo "$GREETING world" > out/hello.txt\n',
}


def write(folder, **changed):
    """The folder, with changes by path; None leaves a file out."""
    for path, text in (FOLDER | {name: text for name, text in changed.items()}).items():
        if text is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    return folder


def play(env, *turns):
    (task,) = env.tasks()
    return asyncio.run(rollout(env, task, Scripted([*turns, "Done."])))


def bash(command):
    return assistant("", ToolCall(id="call", name="bash", arguments=json.dumps({"command": command})))


def test_a_folder_is_read_with_its_limits(tmp_path):
    task = read_harbor_task(write(tmp_path))
    assert (task.name, task.agent_seconds, task.verifier_seconds) == ("us/hello", 60.0, 30.0)
    assert (task.cpus, task.memory_mb, task.storage_mb) == (1.0, 1024, 100)
    plan = plan_sandbox(task)
    assert (plan.workdir, plan.variables) == ("/app", {"GREETING": "hello"})
    assert {*plan.files} == {"/app/data/a.txt", "/app/note.txt"}
    assert plan.places == ("/app", "/logs", "/solution", "/tests")


def test_the_solution_earns_1_and_nothing_0(tmp_path):
    env = Harbor(str(write(tmp_path)))
    (task,) = env.tasks()
    solved = asyncio.run(rollout(env, task, env.oracle(task)))
    assert (solved.status, solved.error, solved.trajectory.score.reward) == (Status.DONE, None, 1.0)
    assert play(env).trajectory.score.reward == 0.0
    by_hand = play(env, bash("ls /tests /solution; echo hello world > out/hello.txt"))
    assert by_hand.trajectory.score.reward == 1.0
    assert "test.sh" not in by_hand.trajectory.messages[-2].content


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(Limits(max_turns=1), "max_turns"), (Limits(timeout=5.0), "timeout"), (Limits(), "agent_seconds")],
)
def test_a_limit_ends_the_work_and_what_there_is_is_verified(tmp_path, limits, reason):
    toml = FOLDER["task.toml"].replace("timeout_sec = 60.0", "timeout_sec = 4.0" if reason == "agent_seconds" else "")
    env = Harbor(str(write(tmp_path, **{"task.toml": toml})))
    (task,) = env.tasks()
    done, stuck = bash("echo hello world > out/hello.txt"), bash("sleep 99")
    cut = asyncio.run(rollout(env, task, Scripted([done, stuck]), limits=limits))
    assert (cut.error, cut.status, cut.stop_reason) == (None, Status.TRUNCATED, reason)
    assert cut.trajectory.score.reward == 1.0


def test_planted_rewards_and_tests_are_removed_before_the_verifier_runs(tmp_path):
    planted = "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 1 > /logs/verifier/reward.json"
    planted += "; printf '#!/bin/bash\\nexit 0\\n' > /tests/test.sh"
    assert play(Harbor(str(write(tmp_path))), bash(planted)).trajectory.score.reward == 0.0


def test_a_verifier_without_a_reward_is_a_failure_and_no_0(tmp_path):
    script = "#!/bin/bash\necho 'curl: (6) Could not resolve host' >&2\nexit 1\n"
    failed = play(Harbor(str(write(tmp_path, **{"tests/test.sh": script}))))
    assert (failed.status, failed.trajectory.score) == (Status.ERROR, None)
    assert failed.error == "us/hello: tests/test.sh wrote no reward: curl: (6) Could not resolve host"


CONTAINER = {
    "environment/Dockerfile": f"""\
FROM {IMAGE}
ENV GREETING=hello PLACE=/etc/greeting
RUN echo made > /etc/made && true | cat
RUN bash -c 'mkdir -p /srv/app/out && chmod 777 /srv/app/out /etc && echo ready > /srv/app/ready.txt'
RUN echo nobody:x:65534:65534::/:/bin/sh >> /etc/passwd && true | cat
WORKDIR /srv/app
COPY data data
COPY note.txt ./
USER nobody
""",
    "tests/test.sh": '#!/bin/bash\n[ "$(cat out/hello.txt)" = "$WANTED" ] && [ "$(cat /etc/made)" = made ] && '
    '[ "$(cat $PLACE)" = here ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n',
    "solution/solve.sh": '#!/bin/bash\ncat ready.txt data/a.txt note.txt && echo "$GREETING world" > out/hello.txt\n'
    "echo here > $PLACE\n",
}
"""A task whose image writes to /etc."""


@pytest.mark.proof("containers")
def test_a_task_is_played_in_a_container(tmp_path, engine, capfd):
    folder = write(tmp_path, **CONTAINER)
    with pytest.raises(UsageError, match=r"^us/hello: the image is made from .*: give engine=podman or engine=docker$"):
        Harbor(str(folder))
    env = Harbor(str(folder), engine=engine)
    (task,) = env.tasks()
    assert task.info["container"]
    solved = asyncio.run(rollout(env, task, env.oracle(task)))
    assert (solved.status, solved.error, solved.trajectory.score.reward) == (Status.DONE, None, 1.0)
    assert capfd.readouterr().err.count("making the image") <= 1
    assert play(env).trajectory.score.reward == 0.0
    planted = (
        "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; printf '#!/bin/bash' > /tests/test.sh; ls; id -u"
    )
    played = play(env, bash(planted))
    assert played.trajectory.score.reward == 0.0
    assert played.trajectory.messages[-2].content.startswith("data\nnote.txt\nout\nready.txt\n65534\n")


def test_images_that_are_missing_or_fail_are_failures_and_no_0(tmp_path, engine):
    settings = FOLDER["task.toml"].replace("[environment]\n", '[environment]\ndocker_image = "localhost/none:1"\n')
    missing = play(Harbor(str(write(tmp_path / "a", **{"task.toml": settings})), engine=engine))
    assert missing.trajectory.score is None
    assert missing.error == f"us/hello: {engine} has no image localhost/none:1: run `{engine} pull localhost/none:1`"
    broken = {"environment/Dockerfile": f"FROM {IMAGE}\nRUN bash -c 'exit 3'\n"}
    failed = play(Harbor(str(write(tmp_path / "b", **broken)), engine=engine))
    assert (failed.status, failed.trajectory.score) == (Status.ERROR, None)
    assert failed.error.startswith(f"us/hello: {engine} build failed: ")
    slow = {**broken, "task.toml": FOLDER["task.toml"] + "build_timeout_sec = 0.001\n"}
    late = play(Harbor(str(write(tmp_path / "c", **slow)), engine=engine))
    assert late.error == f"{engine} build took more than 0.001 s"


def test_an_engine_that_is_missing_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"^engine=no-such: there is no such program"):
        Harbor(str(write(tmp_path)), engine="no-such")


MALFORMED = {
    "no such folder": ({}, "there is no such folder"),
    "no settings": ({"task.toml": None}, "no task.toml"),
    "broken settings": ({"task.toml": "[agent\n"}, "task.toml cannot be read"),
    "a section that is no table": ({"task.toml": "agent = 3\n"}, "[agent] of task.toml is no table"),
    "a time that is no number": ({"task.toml": "[agent]\ntimeout_sec = 'x'\n"}, "timeout_sec is 'x'"),
    "a negative time": ({"task.toml": "[verifier]\ntimeout_sec = -1\n"}, "timeout_sec is -1"),
    "memory without a unit": ({"task.toml": "[environment]\nmemory = 'much'\n"}, "memory is 'much'"),
    "variables that are no texts": ({"task.toml": "[environment.env]\nA = 1\n"}, "env is no table of texts"),
    "several steps": ({"steps/one/instruction.md": "x"}, "several steps"),
    "graphics cards": ({"task.toml": "[environment]\ngpus = 1\n"}, "GPUs"),
    "a verifier elsewhere": ({"task.toml": "[verifier]\nenvironment_mode = 'separate'\n"}, "environment of its own"),
    "several containers": ({"environment/docker-compose.yaml": "x"}, "compose"),
    "no image": ({"environment/Dockerfile": None}, "neither environment/Dockerfile nor docker_image"),
    "no tests": ({"tests/test.sh": None}, "no tests/test.sh"),
    "no instruction": ({"instruction.md": "  \n"}, "no instruction.md"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_folders_are_one_line(tmp_path, name, capsys):
    changed, expected = MALFORMED[name]
    folder = tmp_path / "missing" if not changed else write(tmp_path, **changed)
    with pytest.raises(UsageError) as refused:
        read_harbor_task(folder)
    assert str(refused.value).startswith(f"{folder}: ")
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(SystemExit) as left:
        main(["tasks", "check", str(folder), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (left.value.code, said["tasks"][0]["where"]) == (1, "malformed")


@pytest.mark.parametrize(
    "dockerfile",
    [
        "FROM ghcr.io/astral-sh/uv:latest\n",
        "FROM python:3.11\nRUN apt-get update && apt-get install -y curl\n",
        "FROM python:3.11\nCOPY --from=node:22 /usr /usr\n",
        "FROM python:3.11 AS a\nFROM python:3.11\n",
        "FROM python:3.11\nRUN pip install -e .\n",
        "FROM python:3.11\nWORKDIR /etc/x\n",
        "FROM python:3.11\nVOLUME /data\n",
    ],
)
def test_other_images_need_a_container(tmp_path, dockerfile):
    with pytest.raises(NeedsContainer, match=r"needs a container|no plain"):
        plan_sandbox(read_harbor_task(write(tmp_path, **{"environment/Dockerfile": dockerfile})))


@pytest.mark.parametrize(
    ("name", "text", "reward"),
    [
        ("reward.txt", b"1\n", 1.0),
        ("reward.txt", b" 0.25 ", 0.25),
        ("reward.json", b'{"reward": 0.5, "style": 1}', 0.5),
        ("reward.json", b'{"a": 1, "b": 0}', 0.5),
        ("reward.json", b"0.75", 0.75),
    ],
)
def test_rewards(name, text, reward):
    assert read_reward(name, text) == reward


@pytest.mark.parametrize(("name", "text"), [("r.txt", b""), ("r.txt", b"nan"), ("r.json", b"{}"), ("r.json", b"[1")])
def test_what_is_no_reward(name, text):
    with pytest.raises(UsageError, match=r"no reward|no finite number"):
        read_reward(name, text)


def test_ids_of_pytest_in_junit_xml():
    assert junit_name("tests/test_a.py::TestB::test_c[x-1]") == "tests.test_a.TestB::test_c[x-1]"
    assert junit_name("tests/test_a.py::test_c") == "tests.test_a::test_c"
