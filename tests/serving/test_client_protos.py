"""The gRPC client's own messages are those of the protocol."""

import pytest
from google.protobuf import any_pb2, wrappers_pb2
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2 as metadata_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2

from serving.client import messages_pb2

OURS = messages_pb2.DESCRIPTOR.message_types_by_name
OFFICIAL = {
    name: getattr(module, name).DESCRIPTOR
    for module in (
        *(any_pb2, wrappers_pb2, tensor_pb2, tensor_shape_pb2, meta_graph_pb2),
        *(metadata_pb2, model_pb2, predict_pb2),
    )
    for name in [*OURS, "Any", "Int64Value"]
    if hasattr(module, name)
}
OFFICIAL["Dim"] = OFFICIAL["TensorShapeProto"].nested_types_by_name["Dim"]


@pytest.mark.parametrize("name", [name for name in OURS if name in OFFICIAL])
def test_fields_have_the_numbers_and_types_of_the_protocol(name):
    official = OFFICIAL[name]
    pairs = [(field, official.fields_by_name[field.name]) for field in OURS[name].fields]
    while pairs:
        field, real = pairs.pop()
        kinds = {field.type, real.type}
        assert field.number == real.number and field.is_repeated == real.is_repeated
        assert len(kinds) == 1 or kinds == {field.TYPE_INT32, field.TYPE_ENUM}
        if field.message_type is None:
            continue
        entry = field.message_type
        assert entry.GetOptions().map_entry == real.message_type.GetOptions().map_entry
        if entry.GetOptions().map_entry:
            pairs += zip(entry.fields, real.message_type.fields, strict=True)
        else:
            assert OFFICIAL[entry.name].full_name == real.message_type.full_name


def test_only_configuration_messages_have_no_official_class():
    assert OURS.keys() - OFFICIAL.keys() == {
        *("BatchingParameters", "PrometheusConfig", "MonitoringConfig", "SSLConfig"),
    }
