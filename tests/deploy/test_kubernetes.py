"""The manifests of docs/deploy.

Checked: each against the schemas of Kubernetes (kubernetes-validate, unknown keys refused), what
they name in each other, and that the servers' own checks take the files in them, for every pod.
Not checked: a cluster's own words about them, and images.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rmqha.broker.common.settings import load_config as load_broker
from rmqha.controller.pods import named_by_pod
from rmqha.controller.settings import load_config as load_controller
from rmqha.namesrv.settings import load_config as load_namesrv
from rmqha.remoting.address import parse_address
from rmqha.runtime.environment import overlaid
from rmqha.runtime.properties import parse_properties

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "kubernetes"
FILES = {path.stem: list(yaml.safe_load_all(path.read_text())) for path in FOLDER.glob("*.yaml")}
VERSIONS = ("1.28", "1.32")
"""The oldest that is still about, and a newer one."""

by_file = pytest.mark.parametrize("name", sorted(FILES))


def _one(name: str, kind: str) -> Any:
    (found,) = [one for one in FILES[name] if one["kind"] == kind]
    return found


def _pod(name: str) -> Any:
    return _one(name, "StatefulSet")["spec"]["template"]["spec"]


def _container(name: str) -> Any:
    (found,) = _pod(name)["containers"]
    return found


def _properties(name: str, **over: str) -> dict[str, str]:
    (text,) = _one(name, "ConfigMap")["data"].values()
    return overlaid(parse_properties(text), over)


def _hosts(name: str) -> Iterator[str]:
    """The names under which the pods of a file find each other."""
    spec = _one(name, "StatefulSet")["spec"]
    for number in range(spec["replicas"]):
        yield f"{_one(name, 'StatefulSet')['metadata']['name']}-{number}.{spec['serviceName']}"


@pytest.mark.few
@pytest.mark.parametrize("version", VERSIONS)
@by_file
def test_manifest_when_held_against_the_schema_then_it_fits(name: str, version: str) -> None:
    """A key at the wrong depth is dropped in silence by some clusters."""
    for one in FILES[name]:
        kubernetes_validate.validate(one, version, strict=True)


def test_schema_when_a_key_is_misspelt_then_it_is_found() -> None:
    """A check that finds nothing may be blind."""
    broken = {**_one("controllers", "Service"), "spec": {"clusterIp": "None"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


@by_file
def test_manifest_when_parts_name_each_other_then_they_are_there(name: str) -> None:
    """A selector that selects nothing is no error anywhere."""
    workload = _one(name, "StatefulSet")
    service, budget = _one(name, "Service"), _one(name, "PodDisruptionBudget")
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert service["spec"]["clusterIP"] == "None", "pods need names of their own"
    (rule,) = _pod(name)["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert rule["labelSelector"]["matchLabels"] == labels
    assert workload["spec"]["serviceName"] == service["metadata"]["name"]
    (config,) = [one["configMap"] for one in _pod(name)["volumes"] if "configMap" in one]
    assert config["name"] == _one(name, "ConfigMap")["metadata"]["name"]
    volumes = {one["name"] for one in _pod(name)["volumes"]}
    volumes |= {one["metadata"]["name"] for one in workload["spec"].get("volumeClaimTemplates", [])}
    assert volumes == {one["name"] for one in _container(name)["volumeMounts"]}


@by_file
def test_pod_when_it_is_made_anew_then_it_finds_what_it_wrote(name: str) -> None:
    """A volume of its pod's life: two name servers lost all KV configuration with their pods."""
    kept = {
        one["mountPath"]
        for one in _container(name)["volumeMounts"]
        for claim in _one(name, "StatefulSet")["spec"].get("volumeClaimTemplates", [])
        if one["name"] == claim["metadata"]["name"]
    }
    paths = [value for value in _properties(name).values() if value.startswith("/")]
    assert paths
    for path in paths:
        assert any(path.startswith(f"{one}/") for one in kept), path


@by_file
def test_pod_when_started_then_its_file_and_ports_are_those_of_its_settings(name: str) -> None:
    """A port that nobody listens on, or a file that is mounted elsewhere."""
    container, properties = _container(name), _properties(name)
    (file_name,) = _one(name, "ConfigMap")["data"]
    assert container["args"][1:] == ["-c", f"/etc/rmqha/{file_name}"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert str(ports["metrics"]) == properties["metricsPromExporterPort"]
    assert properties["metricsExporterType"] == "PROM"
    for one in _one(name, "Service")["spec"]["ports"]:
        assert ports[one["name"]] == one["port"]
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "metrics"}
    annotations = _one(name, "StatefulSet")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ports["metrics"])
    writable = {one["mountPath"] for one in container["volumeMounts"]} - {"/etc/rmqha"}
    paths = [value for value in properties.values() if value.startswith("/")]
    assert all(any(path.startswith(f"{one}/") for one in writable) for path in paths)


def test_controllers_when_their_file_is_read_then_each_pod_is_one_of_the_group() -> None:
    """One file for three pods, told apart by their names."""
    hosts = list(_hosts("controllers"))
    port = next(
        one["containerPort"]
        for one in _container("controllers")["ports"]
        if one["name"] == "controller"
    )
    (variable,) = _container("controllers")["env"]
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    addresses = []
    for host in hosts:
        environment = {variable["name"]: host.partition(".")[0]}
        found = named_by_pod(_properties("controllers"), environment)
        config = load_controller(found, home="", user_home="/data")
        assert config.unknown == ()
        addresses.append(config.this.address)
    assert addresses == [f"{host}:{port}" for host in hosts]
    assert len(config.peers) == len(hosts)


def test_brokers_when_their_file_is_read_then_they_find_controllers_and_name_servers() -> None:
    """The three files are written by hand, and each names pods of the others."""
    (variable,) = _container("brokers")["env"]
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    config = load_broker(
        _properties("brokers", **{variable["name"]: "10.1.2.3"}),
        host_name="broker-a-0", local_address="127.0.0.1", user_home="/data",
    )  # fmt: skip
    assert (config.unknown, config.host, config.ha_host) == ((), "10.1.2.3", "10.1.2.3")
    ports = {one["name"]: one["containerPort"] for one in _container("brokers")["ports"]}
    assert ports == {
        "fast": config.port - 2, "broker": config.port, "replication": config.ha_port,
        "metrics": 5557,
    }  # fmt: skip
    assert [parse_address(one) for one in config.controllers] == [
        (host, 9878) for host in _hosts("controllers")
    ]
    assert [parse_address(one) for one in config.name_servers] == [
        (host, 9876) for host in _hosts("namesrv")
    ]


def test_name_servers_when_their_file_is_read_then_every_key_is_known() -> None:
    """A key that has no effect is only a line in the log."""
    config = load_namesrv(_properties("namesrv"), user_home="/data")
    assert config.unknown == ()
    ports = {one["name"]: one["containerPort"] for one in _container("namesrv")["ports"]}
    assert str(ports["namesrv"]) == config.values["listenPort"]
