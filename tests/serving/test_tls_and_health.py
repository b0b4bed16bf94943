"""TLS for gRPC (server.cc, ssl_config.proto) and the health service."""

import shutil
import subprocess

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.config_files import read_credentials


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """Keys and certificates, signed by an authority of their own, valid for two days."""
    if not shutil.which("openssl"):
        pytest.skip("makes certificates with the program openssl")
    folder = tmp_path_factory.mktemp("pem")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = "req -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 2".split()
    openssl(*new, "-x509", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt")
    (folder / "names").write_text("subjectAltName = IP:127.0.0.1")
    for name in ("server", "client"):
        openssl(*new[:-2], "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(
            *f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2".split(),
            *f"-extfile names -out {name}.crt".split(),
        )
    return {path.name: path.read_text() for path in folder.glob("*.[kc]*")}


def config(**values):
    quoted = {name: value.replace("\n", "\\n") for name, value in values.items()}
    return "".join(f'{name}: "{value}"\n' for name, value in quoted.items())


def test_tls_accepts_only_clients_with_a_certificate(start_server, toys, tmp_path, pem):
    base = tmp_path / "base"
    base.mkdir()
    toys.export(base, 1)
    file = tmp_path / "ssl.config"
    values = {"server_key": "server.key", "server_cert": "server.crt", "custom_ca": "ca.crt"}
    text = config(**{field: pem[name] for field, name in values.items()})
    file.write_text(text + "client_verify: true")
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "toy"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a"]))
    with start_server(
        "--model_name=toy",
        f"--model_base_path={base}",
        f"--ssl_config_file={file}",
        "--enable_grpc_healthcheck_service",
    ) as server:
        address = f"127.0.0.1:{server.grpc_port}"
        authority = pem["ca.crt"].encode()
        client = pem["client.key"].encode(), pem["client.crt"].encode()
        good = grpc.ssl_channel_credentials(authority, *client)
        with grpc.secure_channel(address, good) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            outputs = stub.Predict(request, timeout=30).outputs
            assert outputs["translation"].string_val == [b"1:a"]
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", "ModelService", "PredictionService"):
                asked = health_pb2.HealthCheckRequest(service=service)
                assert health.Check(asked, timeout=30).status == 1
            with pytest.raises(grpc.RpcError) as info:
                health.Check(health_pb2.HealthCheckRequest(service="other"), timeout=30)
            assert info.value.code() == grpc.StatusCode.NOT_FOUND
        for channel in (
            grpc.secure_channel(address, grpc.ssl_channel_credentials(authority)),
            grpc.secure_channel(address, grpc.ssl_channel_credentials()),
            grpc.insecure_channel(address),
        ):
            with channel, pytest.raises(grpc.RpcError) as info:
                stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
                stub.Predict(request, timeout=30)
            assert info.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    "missing, message",
    [
        ("server_key", "server_key must hold"),
        ("server_cert", "server_cert must hold"),
        ("custom_ca", "client_verify needs"),
    ],
)
def test_tls_needs_key_certificate_and_authority(tmp_path, missing, message):
    file = tmp_path / "ssl.config"
    values = dict.fromkeys(("server_key", "server_cert", "custom_ca"), "-----BEGIN")
    del values[missing]
    file.write_text(config(**values) + "client_verify: true")
    with pytest.raises(ValueError, match=message):
        read_credentials(file)


def test_keys_and_certificates_must_fit(tmp_path, pem):
    file = tmp_path / "ssl.config"

    def refusal(**names):
        values = {"server_key": "server.key", "server_cert": "server.crt", **names}
        file.write_text(config(**{field: pem.get(name, name) for field, name in values.items()}))
        with pytest.raises(ValueError) as info:
            read_credentials(file)
        return str(info.value).removeprefix(f"{file}: ")

    pair = "server_key and server_cert must be a key without a password and its certificate. "
    assert refusal(server_key="client.key") == f"{pair}Received: KEY_VALUES_MISMATCH."
    assert refusal(server_cert="-----BEGIN CERTIFICATE-----").startswith(f"{pair}Received: ")
    assert refusal(custom_ca="nobody").startswith("custom_ca must be a certificate in PEM form. ")


def test_a_missing_tls_file_is_reported(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read_credentials(tmp_path / "ssl.config")


@pytest.mark.point(n=22)
def test_the_health_service_is_off_unless_asked_for(server):
    with server.channel() as channel, pytest.raises(grpc.RpcError) as info:
        stub = health_pb2_grpc.HealthStub(channel)
        stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
    assert info.value.code() == grpc.StatusCode.UNIMPLEMENTED
