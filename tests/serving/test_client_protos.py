"""The messages that the gRPC client knows by itself are those of the protocol."""

import pytest
from google.protobuf import any_pb2, wrappers_pb2
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, model_pb2, predict_pb2

from serving.client import protos

OFFICIAL = {
    "Dim": tensor_shape_pb2.TensorShapeProto.Dim,
    **{
        name: getattr(module, name)
        for module in (
            any_pb2,
            wrappers_pb2,
            tensor_pb2,
            tensor_shape_pb2,
            meta_graph_pb2,
            get_model_metadata_pb2,
            model_pb2,
            predict_pb2,
        )
        for name in protos.MESSAGES
        if hasattr(module, name)
    },
}


@pytest.mark.parametrize("name", protos.MESSAGES)
def test_messages_are_those_of_the_protocol(name):
    official = OFFICIAL[name].DESCRIPTOR
    ours = protos.build()[name].DESCRIPTOR
    assert [field.name for field in ours.fields] == list(protos.MESSAGES[name])
    pairs = [(field, official.fields_by_name[field.name]) for field in ours.fields]
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
            assert OFFICIAL[entry.name].DESCRIPTOR.full_name == real.message_type.full_name
