"""Files for the real server: each parses, and they agree with one another and with ours."""

import pathlib
import re

import pages
import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

import serving
from keras_attn.export.servable_ops import FIRST_VERSION
from serving.client.messages_pb2 import MonitoringConfig
from serving.config_files import read_batching_options, read_config
from serving.flags import parse_flags

FOLDER = pathlib.Path(serving.__file__).parent
CONFIGS = {"models.config", "batching.config", "monitoring.config"}
IMAGE_PORTS = {8500, 8501}  # gRPC and REST, by the image's own start script


def manifests():
    """Return the manifests by kind."""
    documents = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text(encoding="utf-8"))
    return {document["kind"]: document for document in documents}


def load(name):
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model():
    text = (FOLDER / "models.config").read_text(encoding="utf-8")
    (config,) = text_format.Parse(text, ModelServerConfig()).model_config_list.config
    assert (config.name, config.model_platform) == ("translate", "tensorflow")
    return config


@pytest.fixture(scope="module")
def compose():
    (service,) = load("compose.yaml")["services"].values()
    return service


@pytest.fixture(scope="module")
def container():
    (spec,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return spec


def test_the_shipped_batching_parameters_are_valid():
    options = read_batching_options(FOLDER / "batching.config")
    assert options.pad_variable_length_inputs
    assert 0 < options.batch_timeout_micros < 100_000


def test_compose_mounts_every_file_it_names(compose, model):
    mounts = dict(
        volume.rsplit(":", 2)[:2] for volume in compose["volumes"] if "MODELS" not in volume
    )
    assert {pathlib.PurePath(source).name for source in mounts} == CONFIGS
    assert all((FOLDER / source).is_file() for source in mounts)
    flags = parse_flags(compose["command"])
    named = {flags.model_config_file, flags.batching_parameters_file, flags.monitoring_config_file}
    assert named == set(mounts.values())
    (models,) = [volume for volume in compose["volumes"] if "MODELS" in volume]
    assert models.endswith(":/models:ro") and model.base_path.startswith("/models/")
    published = {tuple(port.split(":")) for port in compose["ports"]}
    assert published == {("127.0.0.1", str(port), str(port)) for port in IMAGE_PORTS}
    assert compose["healthcheck"]["test"][-1].endswith("/127.0.0.1/8501")


def test_kubernetes_objects_refer_to_each_other(container, model):
    objects = manifests()
    assert load("kustomization.yaml")["resources"] == ["kubernetes.yaml"]
    (generated,) = load("kustomization.yaml")["configMapGenerator"]
    assert set(generated["files"]) == CONFIGS
    pod = objects["Deployment"]["spec"]["template"]
    sources = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert sources["config"]["configMap"]["name"] == generated["name"]
    claim = sources["models"]["persistentVolumeClaim"]["claimName"]
    assert claim == objects["PersistentVolumeClaim"]["metadata"]["name"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    flags = parse_flags(container["args"])
    named = [flags.model_config_file, flags.batching_parameters_file, flags.monitoring_config_file]
    assert {pathlib.PurePath(path) for path in named} == {
        pathlib.PurePath(mounts["config"], name) for name in CONFIGS
    }
    assert model.base_path.startswith(f"{mounts['models']}/")
    labels = pod["metadata"]["labels"]
    assert objects["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert objects["Service"]["spec"]["selector"].items() <= labels.items()
    target = objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    deployment = objects["Deployment"]
    assert target == {
        "apiVersion": deployment["apiVersion"],
        "kind": "Deployment",
        "name": deployment["metadata"]["name"],
    }


def test_kubernetes_probes_ask_for_the_model_status(container, model):
    objects = manifests()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert set(ports.values()) == IMAGE_PORTS
    for port in objects["Service"]["spec"]["ports"]:
        assert ports[port["targetPort"]] == port["port"]
    for probe in ("startupProbe", "readinessProbe"):
        get = container[probe]["httpGet"]
        assert (ports[get["port"]], get["path"]) == (8501, f"/v1/models/{model.name}")
    assert ports[container["livenessProbe"]["tcpSocket"]["port"]] == 8501
    pod = objects["Deployment"]["spec"]["template"]
    scraped = pod["metadata"]["annotations"]
    monitoring = read_config(FOLDER / "monitoring.config", MonitoringConfig).prometheus_config
    assert monitoring.enable and scraped["prometheus.io/path"] == monitoring.path
    assert ports["rest"] == int(scraped["prometheus.io/port"])
    # A request that came just before the end may take as long as the server lets it.
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    longest = parse_flags(container["args"]).rest_api_timeout_in_ms / 1000
    assert longest <= pause < pod["spec"]["terminationGracePeriodSeconds"]
    scale = objects["HorizontalPodAutoscaler"]["spec"]
    assert 1 < scale["minReplicas"] < scale["maxReplicas"]
    assert "replicas" not in objects["Deployment"]["spec"]
    assert container["resources"]["requests"]["cpu"]  # what the autoscaler's percentage is of


def test_all_files_name_the_same_image(compose, container):
    text = "\n".join(map(pages.text, pages.PAGES))
    images = {compose["image"], container["image"], *re.findall(r"tensorflow/serving:[\w.]+", text)}
    assert len(images) == 1


def test_the_image_runs_all_operations_of_exports(container):
    version = container["image"].partition(":")[2].split(".")
    assert tuple(map(int, version[:2])) >= max(FIRST_VERSION.values())
