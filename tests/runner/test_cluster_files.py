"""The files for Slurm and Kubernetes are valid: schemas of the real API, commands and options that exist."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from patience import PATIENCE
from project_files import ROOT
from wanderlust.cli.main import build

FOLDER = ROOT / "examples" / "cluster"
DOCUMENTS = [
    pytest.param(document, id=f"{path.name}-{document['kind']}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
RAY_JOB = {"entrypoint", "shutdownAfterJobFinishes", "rayClusterSpec"}
RAY_GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
"""Fields of KubeRay's ray.io/v1 that the file uses."""


def options_of(command: str) -> set[str]:
    app = build()[command]
    return {name for argument in app.assemble_argument_collection() for name in argument.names}


def check_command(words: list[str]) -> None:
    """Every option of a `wander` command exists."""
    given = {word.split("=")[0] for word in words[1:] if word.startswith("--")}
    assert words[0] in {"train", "eval"}
    assert given
    assert given <= options_of(words[0]), given - options_of(words[0])


def pod_specs(document: Any) -> list[Any]:
    """Pod templates anywhere in a document."""
    if isinstance(document, dict):
        own = [document["template"]] if isinstance(document.get("template"), dict) else []
        return own + [spec for value in document.values() for spec in pod_specs(value)]
    return [spec for value in document for spec in pod_specs(value)] if isinstance(document, list) else []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_are_what_the_api_takes(document: dict[str, Any]) -> None:
    if document["apiVersion"] != "ray.io/v1":
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        return
    assert document["spec"].keys() <= RAY_JOB
    cluster = document["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group.keys() <= RAY_GROUP
    templates = pod_specs(document)
    assert len(templates) == 2
    for template in templates:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


def test_a_misspelt_field_is_found() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"contaners": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


def test_commands_in_the_files_exist() -> None:
    (ray_job,) = yaml.safe_load_all((FOLDER / "eval.yaml").read_text())
    check_command(shlex.split(ray_job["spec"]["entrypoint"])[1:])
    job = next(d for d in yaml.safe_load_all((FOLDER / "train.yaml").read_text()) if d["kind"] == "Job")
    script = job["spec"]["template"]["spec"]["containers"][0]["args"][0]
    for text in (script, (FOLDER / "train.sbatch").read_text()):
        found = re.findall(r"(?:words|WORDS)=\((train .*?)\)(?:;|\n)", text, re.DOTALL)
        assert len(found) == 2
        for command in found:
            check_command(re.sub(r"\$\(.*?\)", "x", command).split())


SHIMS = {
    "scontrol": "printf 'a\\nb\\nc\\n'",
    "srun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
    "vllm": 'echo "serve $*" >> "$SAID"; exec sleep 60',
    "curl": 'until [ "$(grep -c ^serve "$SAID")" = 4 ]; do sleep 0.05; done',
    "torchrun": 'echo "torchrun $*" >> "$SAID"',
}


@pytest.mark.parametrize("resumed", [False, True])
def test_the_slurm_script_starts_servers_then_the_trainer(tmp_path: Path, resumed: bool) -> None:
    """Slurm's own commands are replaced by ones that run everything here; what is started is what is compared."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in SHIMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    if resumed:
        (tmp_path / "runs" / "mine").mkdir(parents=True)
    variables = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "SAID": str(tmp_path / "said"),
        "MODEL": "/shared/model",
        "ENVIRONMENT": "mine:Env",
        "SERVER_NODES": "2",
        "GPUS": "4",
        "TENSOR_PARALLEL": "2",
        "RUNS": str(tmp_path / "runs"),
        "NAME": "mine",
        "SLURM_JOB_NAME": "j",
        "SLURM_JOB_NODELIST": "a,b,c",
    }
    subprocess.run(["bash", FOLDER / "train.sbatch"], env=variables, check=True, timeout=PATIENCE, cwd=tmp_path)
    said = (tmp_path / "said").read_text().splitlines()
    servers = sorted(line for line in said if line.startswith("serve"))
    assert [line.split()[4] + ":" + line.split()[6] for line in servers] == ["a:8000", "a:8002", "b:8000", "b:8002"]
    (trainer,) = [line for line in said if line.startswith("torchrun")]
    assert "--nnodes 1 --nproc-per-node 4" in trainer
    assert "--rdzv-endpoint c:29500" in trainer
    urls = "http://a:8000/v1,http://a:8002/v1,http://b:8000/v1,http://b:8002/v1"
    assert (f"--resume {tmp_path}/runs/mine" in trainer) == resumed
    assert (f"--engine-url {urls}" in trainer) != resumed
    assert (tmp_path / "runs" / "mine.key").stat().st_mode & 0o077 == 0
