"""What a RayJob of group ray.io/v1 may look like, written down from KubeRay's field reference.

The published custom-resource definition spells out every field of a pod as well; those are checked
against the Kubernetes client's own models where that package is installed. The definition itself, over a
megabyte, is on no package index: KUBERAY_CRD names a copy of it (`ray.io_rayjobs.yaml` of a release).
"""

from __future__ import annotations

from typing import Any

TEXT, FLAG, COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
TEXTS = {"type": "object", "additionalProperties": TEXT}
POD = {"type": "object", "required": ["spec"]}


def _object(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


CLUSTER = _object(
    ("headGroupSpec",),
    rayVersion=TEXT,
    suspend=FLAG,
    managedBy=TEXT,
    enableInTreeAutoscaling=FLAG,
    headServiceAnnotations=TEXTS,
    authOptions=_object(mode={"enum": ["disabled", "token"]}, secretName=TEXT, enableK8sTokenAuth=FLAG),
    autoscalerOptions=_object(
        idleTimeoutSeconds=COUNT,
        upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
        version={"enum": ["v1", "v2"]},
        image=TEXT,
        imagePullPolicy=TEXT,
        resources={"type": "object"},
        env={"type": "array"},
        envFrom={"type": "array"},
        volumeMounts={"type": "array"},
        securityContext={"type": "object"},
    ),
    gcsFaultToleranceOptions={"type": "object"},
    headGroupSpec=_object(
        ("template",),
        serviceType={"enum": ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]},
        headService={"type": "object"},
        enableIngress=FLAG,
        rayStartParams=TEXTS,
        resources=TEXTS,
        labels=TEXTS,
        template=POD,
    ),
    workerGroupSpecs={
        "type": "array",
        "items": _object(
            ("groupName", "minReplicas", "maxReplicas", "template"),
            groupName=TEXT,
            replicas=COUNT,
            minReplicas=COUNT,
            maxReplicas=COUNT,
            numOfHosts=COUNT,
            idleTimeoutSeconds=COUNT,
            suspend=FLAG,
            rayStartParams=TEXTS,
            resources=TEXTS,
            labels=TEXTS,
            scaleStrategy={"type": "object"},
            template=POD,
        ),
    },
)

RAYJOB = _object(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata={"type": "object", "required": ["name"]},
    spec=_object(
        entrypoint=TEXT,
        entrypointNumCpus={"type": "number"},
        entrypointNumGpus={"type": "number"},
        entrypointResources=TEXT,
        runtimeEnvYAML=TEXT,
        jobId=TEXT,
        metadata=TEXTS,
        clusterSelector=TEXTS,
        managedBy=TEXT,
        activeDeadlineSeconds={"type": "integer", "minimum": 1},
        preRunningDeadlineSeconds={"type": "integer", "minimum": 1},
        backoffLimit=COUNT,
        submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
        submitterPodTemplate=POD,
        submitterConfig=_object(backoffLimit=COUNT),
        deletionStrategy={"type": "object"},
        shutdownAfterJobFinishes=FLAG,
        ttlSecondsAfterFinished=COUNT,
        suspend=FLAG,
        rayClusterSpec=CLUSTER,
    ),
)


def published(definition: dict[str, Any]) -> Any:
    """The schema of ray.io/v1 in a custom-resource definition, made strict: what it does not name is an error."""
    version = next(v for v in definition["spec"]["versions"] if v["name"] == "v1")
    return _strict(version["schema"]["openAPIV3Schema"])


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(part) for key, part in schema.items()}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and "properties" in schema and not open_ended:
        made["additionalProperties"] = False
    return made


def check_pods(job: dict[str, Any], models: Any) -> None:
    """Every pod template of a RayJob against the classes of `kubernetes.client`; raises on a mistake."""
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        build(group["template"], "V1PodTemplateSpec", models)


def build(value: Any, kind: str, models: Any) -> Any:
    """`value` as an object of the client's model `kind`: its fields, their types, what is required."""
    if kind.startswith("list["):
        assert isinstance(value, list), f"expected a list, got {value!r}"
        return [build(item, kind[5:-1], models) for item in value]
    if kind.startswith("dict("):
        assert isinstance(value, dict), f"expected a mapping, got {value!r}"
        return {name: build(item, kind[5:-1].split(", ")[1], models) for name, item in value.items()}
    simple = {"str": str, "int": int, "bool": bool, "float": (int, float)}
    if kind in simple:
        assert isinstance(value, simple[kind]), f"expected {kind}, got {value!r}"
        return value
    model = getattr(models, kind, None)
    if model is None:  # a quantity, a date, a number or a word
        return value
    assert isinstance(value, dict), f"expected a mapping for {kind}, got {value!r}"
    by_json = {json: name for name, json in model.attribute_map.items()}
    unknown = set(value) - set(by_json)
    assert not unknown, f"{kind} has no {', '.join(sorted(unknown))}"
    return model(
        **{by_json[key]: build(item, model.openapi_types[by_json[key]], models) for key, item in value.items()}
    )
