"""Every launcher file is one that its launcher accepts, and says what a reader needs first."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.clusters.rayjob import RAYJOB, check_pods, published
from tests.conftest import ROOT

FOLDER = ROOT / "clusters"
LAUNCHERS = ("on-prem", "aws-gpu", "aws-gpu-spot", "gcp-gpu", "laptop")
SCRIPTS = ("slurm.sbatch", "laptop.sh", "node-env.sh")
Change = Callable[[dict[str, Any]], Any]


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return content


def rayjob() -> dict[str, Any]:
    documents = yaml.safe_load_all((FOLDER / "kuberay-rayjob.yaml").read_text())
    return next(d for d in documents if d["kind"] == "RayJob")


def accept(config: dict[str, Any]) -> dict[str, Any]:
    """What `ray up` does before it does anything: fill in the defaults, then check."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared: dict[str, Any] = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    return prepared


@pytest.mark.parametrize("name", LAUNCHERS)
def test_ray_accepts_the_launcher_file(name: str) -> None:
    prepared = accept(load(name))
    assert prepared["head_node_type"] in prepared["available_node_types"]


BROKEN: dict[str, Change] = {
    "misspelt key": lambda c: c.update(setup_comands=[]),
    "no provider": lambda c: c.pop("provider"),
    "commands as text": lambda c: c.update(head_start_ray_commands="ray start"),
    "name as number": lambda c: c.update(cluster_name=7),
}


@pytest.mark.parametrize("mistake", BROKEN)
@pytest.mark.parametrize("name", LAUNCHERS)
def test_ray_refuses_a_broken_copy(name: str, mistake: str) -> None:
    config = load(name)
    BROKEN[mistake](config)
    with pytest.raises((jsonschema.ValidationError, KeyError, TypeError, NotImplementedError)):
        accept(config)


@pytest.mark.parametrize("name", ["aws-gpu", "aws-gpu-spot", "gcp-gpu"])
def test_ray_refuses_an_unknown_head_type(name: str) -> None:
    with pytest.raises(ValueError, match="head_node_type"):
        accept(load(name) | {"head_node_type": "hed"})


@pytest.mark.parametrize("path", sorted(p.name for p in FOLDER.iterdir() if p.suffix != ".py" and p.is_file()))
def test_a_file_opens_with_what_it_is_for(path: str) -> None:
    text = (FOLDER / path).read_text()
    assert text.startswith("#")
    if path in ("runtime-env.yaml", "node-env.sh", "laptop.sh", "Dockerfile"):
        return
    header = "\n".join(line for line in text.splitlines() if line.startswith("# "))
    for word in ("up", "down", "cost", "change"):
        assert re.search(rf"^# {word}\s", header, re.MULTILINE), f"{path}: no line about {word}"


@pytest.mark.parametrize("name", [n for n in LAUNCHERS if n != "laptop"])
def test_every_mounted_file_is_in_the_project(name: str) -> None:
    mounts = load(name)["file_mounts"]
    local = {path for path in mounts.values() if not path.startswith("~")}
    assert {"sweep", "solvers", "dashboards", "clusters", "pyproject.toml"} <= local
    assert [path for path in local if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", [n for n in LAUNCHERS if n != "laptop"])
def test_nothing_that_takes_code_is_open_to_others_without_the_token(name: str) -> None:
    config = load(name)
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][-1]
    assert any("node-env.sh" in command for command in config["setup_commands"])
    assert "export RAY_AUTH_MODE=token" in (FOLDER / "node-env.sh").read_text()
    for rule in config["provider"].get("security_group", {}).get("IpPermissions", []):
        assert rule["ToPort"] == 22
        assert all(not r["CidrIp"].endswith("/0") for r in rule["IpRanges"])


def test_no_file_holds_a_secret() -> None:
    for path in FOLDER.iterdir():
        assert not re.search(r"(?i)(password|token|secret)\w*[=:]\s*['\"]?[\w/+]{12,}", path.read_text()), path.name


# -- node_config against the clouds' own descriptions -------------------------------------------------


def aws_problem(node: dict[str, Any]) -> str:
    botocore = pytest.importorskip("botocore.session", reason="pip install botocore")
    from botocore.validate import ParamValidator

    shape = botocore.get_session().get_service_model("ec2").operation_model("RunInstances").input_shape
    report = ParamValidator().validate(node | {"MinCount": 1, "MaxCount": 1}, shape)
    return str(report.generate_report())


@pytest.mark.parametrize("kind", ["head", "gpu"])
@pytest.mark.parametrize("name", ["aws-gpu", "aws-gpu-spot"])
def test_aws_knows_the_node_config(name: str, kind: str) -> None:
    node = load(name)["available_node_types"][kind]["node_config"]
    assert aws_problem(node) == ""
    assert "InstanceTyp" in aws_problem({"InstanceTyp": node["InstanceType"]})
    assert aws_problem(node | {"BlockDeviceMappings": {"DeviceName": "/dev/sda1"}}) != ""


def test_only_the_workers_are_on_spot() -> None:
    types = load("aws-gpu-spot")["available_node_types"]
    assert "InstanceMarketOptions" not in types["head"]["node_config"]
    assert types["gpu"]["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"
    assert "InstanceMarketOptions" not in load("aws-gpu")["available_node_types"]["gpu"]["node_config"]


def gcp_problems(value: Any, kind: dict[str, Any], schemas: dict[str, Any], where: str = "") -> list[str]:
    """Fields and types of `value` that Google's description of Compute Engine does not know."""
    kind = schemas[kind["$ref"]] if "$ref" in kind else kind
    if kind["type"] == "object" and "properties" in kind:
        if not isinstance(value, dict):
            return [f"{where}: expected a mapping"]
        unknown = [f"{where}.{name}: unknown" for name in value if name not in kind["properties"]]
        known = {name: item for name, item in value.items() if name in kind["properties"]}
        nested = [gcp_problems(v, kind["properties"][n], schemas, f"{where}.{n}") for n, v in known.items()]
        return unknown + [problem for part in nested for problem in part]
    if kind["type"] == "array":
        if not isinstance(value, list):
            return [f"{where}: expected a list"]
        return [p for item in value for p in gcp_problems(item, kind["items"], schemas, f"{where}[]")]
    if "enum" in kind and value not in kind["enum"]:
        return [f"{where}: {value!r} is not one of {kind['enum']}"]
    # 64-bit numbers are strings there, and written as either.
    types = {"string": (str, int), "integer": int, "boolean": bool}.get(kind["type"], object)
    return [] if isinstance(value, types) else [f"{where}: expected {kind['type']}, got {value!r}"]


@pytest.mark.parametrize("kind", ["head", "gpu"])
def test_google_knows_the_node_config(kind: str) -> None:
    google = pytest.importorskip("googleapiclient", reason="pip install google-api-python-client")
    document = Path(google.__path__[0]) / "discovery_cache" / "documents" / "compute.v1.json"
    schemas = json.loads(document.read_text())["schemas"]
    node = load("gcp-gpu")["available_node_types"][kind]["node_config"]
    assert gcp_problems(node, {"$ref": "Instance"}, schemas) == []
    assert gcp_problems(node | {"machineTyp": "x"}, {"$ref": "Instance"}, schemas)
    assert gcp_problems(node | {"scheduling": [{"preemptible": True}]}, {"$ref": "Instance"}, schemas)
    assert gcp_problems(node | {"scheduling": {"provisioningModel": "CHEAP"}}, {"$ref": "Instance"}, schemas)


# -- Kubernetes ---------------------------------------------------------------------------------------


def test_kuberay_accepts_the_rayjob() -> None:
    jsonschema.validate(rayjob(), RAYJOB)


def worker(job: dict[str, Any]) -> dict[str, Any]:
    group: dict[str, Any] = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    return group


BROKEN_JOBS: dict[str, Change] = {
    "misspelt key": lambda j: j["spec"].update(entrypont="sweep run x"),
    "unknown submission mode": lambda j: j["spec"].update(submissionMode="Batch"),
    "text for a number": lambda j: worker(j).update(maxReplicas="4"),
    "no group name": lambda j: worker(j).pop("groupName"),
    "no head": lambda j: j["spec"]["rayClusterSpec"].pop("headGroupSpec"),
    "start parameter that is no text": lambda j: worker(j).update(rayStartParams={"num-gpus": 1}),
    "unknown authentication": lambda j: j["spec"]["rayClusterSpec"]["authOptions"].update(mode="password"),
    "old version": lambda j: j.update(apiVersion="ray.io/v1alpha1"),
}


@pytest.mark.parametrize("mistake", BROKEN_JOBS)
def test_kuberay_refuses_a_broken_copy(mistake: str) -> None:
    job = rayjob()
    BROKEN_JOBS[mistake](job)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, RAYJOB)


def test_the_published_definition_accepts_the_rayjob_and_refuses_a_broken_copy() -> None:
    path = os.environ.get("KUBERAY_CRD")
    if path is None:
        pytest.skip("KUBERAY_CRD names no copy of KubeRay's ray.io_rayjobs.yaml")
    schema = published(yaml.safe_load(Path(path).read_text()))
    jsonschema.validate(rayjob(), schema)
    job = rayjob()
    BROKEN_JOBS["misspelt key"](job)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, schema)


def test_a_definition_is_made_strict() -> None:
    text = {"type": "string"}
    labels = {"type": "object", "additionalProperties": text}
    spec = {"type": "object", "properties": {"name": text, "labels": labels}}
    versions = [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]
    schema = published({"spec": {"versions": versions}})
    jsonschema.validate({"spec": {"name": "x", "labels": {"any": "thing"}}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"spec": {"nam": "x"}}, schema)


def test_kubernetes_knows_the_pods() -> None:
    models = pytest.importorskip("kubernetes.client", reason="pip install kubernetes")
    check_pods(rayjob(), models)
    broken: tuple[Change, ...] = (
        lambda pod: pod["containers"][0].update(imag="x"),
        lambda pod: pod["containers"][0].pop("name"),
        lambda pod: pod.update(containers={}),
        lambda pod: pod["containers"][0]["env"].append({"name": 1}),
    )
    for change in broken:
        job = rayjob()
        change(worker(job)["template"]["spec"])
        with pytest.raises((AssertionError, ValueError)):
            check_pods(job, models)


def test_a_pod_declares_the_gpus_that_the_pool_may_grow_to() -> None:
    job = rayjob()
    container = worker(job)["template"]["spec"]["containers"][0]
    variables = {item["name"]: item["value"] for item in container["env"]}
    gpus = int(container["resources"]["limits"]["nvidia.com/gpu"])
    assert int(variables["SWEEP_GPUS"]) == worker(job)["maxReplicas"] * gpus


@pytest.mark.parametrize("name", ["aws-gpu", "aws-gpu-spot", "gcp-gpu"])
def test_sweep_gpus_is_what_the_pool_may_grow_to(name: str) -> None:
    config = load(name)
    kind = config["available_node_types"]["gpu"]
    stated = re.search(r"SWEEP_GPUS=(\d+)", " ".join(config["setup_commands"]))
    assert stated is not None
    assert int(stated[1]) == kind["max_workers"] * kind["resources"]["GPU"]
    assert config["max_workers"] == kind["max_workers"]


# -- scripts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTS)
def test_bash_accepts_the_script_and_refuses_a_broken_copy(name: str, tmp_path: Path) -> None:
    assert subprocess.run(["bash", "-n", FOLDER / name], capture_output=True).returncode == 0
    broken = tmp_path / name
    broken.write_text((FOLDER / name).read_text().replace("fi\n", "\n").replace("done\n", "\n") + "\nif true; then\n")
    assert subprocess.run(["bash", "-n", broken], capture_output=True).returncode != 0


def test_the_job_environment_is_one_that_ray_accepts() -> None:
    from ray.runtime_env import RuntimeEnv

    content = load("runtime-env")
    assert RuntimeEnv(**content)["env_vars"]["SWEEP_HOME"].startswith("${HOME}/")
    with pytest.raises((TypeError, ValueError)):
        RuntimeEnv(**content | {"env_vars": {"SWEEP_HOME": 3}})
