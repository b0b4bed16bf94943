"""Asks a server for translations: `python -m serving.client --help`."""

import argparse
import http.client
import json
import sys
import urllib.error
import urllib.request


class ClientError(Exception):
    """The server gave no usable answer; the message is one sentence for the user."""


def translate_rest(url, texts, timeout=60.0):
    """Translates over REST, with nothing but the standard library.

    Args:
        url: string. The model's address, `http://HOST:PORT/v1/models/NAME`.
        texts: list of strings.
        timeout: float. Seconds.

    Returns:
        List of strings.

    Raises:
        ClientError: if the server cannot be reached, refuses, or does not translate.
    """
    body = json.dumps({"instances": list(texts)}).encode()
    try:
        request = urllib.request.Request(
            f"{url.rstrip('/')}:predict", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            predictions = json.load(answer)["predictions"]
    except urllib.error.HTTPError as error:
        raise ClientError(f"{url} answered {error.code}: {_reason(error)}") from error
    except (http.client.HTTPException, UnicodeError) as error:
        raise ClientError(f"{url} is not the address of a served model: {error}") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise ClientError(f"No server answers at {url}: {reason}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ClientError(f"{url} is not the address of a served model: {error}") from error
    return [_translation(url, prediction) for prediction in predictions]


def translate_grpc(address, model_name, texts, timeout=60.0):
    """Translates over gRPC.

    Args:
        address: string. `HOST:PORT`.
        model_name: string.
        texts: list of strings.
        timeout: float. Seconds.

    Returns:
        List of strings.

    Raises:
        ClientError: if the server cannot be reached, refuses, or does not translate.
        ImportError: if the packages of the extra `serving` are missing.
    """
    try:
        import grpc
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
    except ImportError as error:
        raise ImportError(f"{error}. gRPC needs: pip install 'keras_attn[serving]'") from error

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model_name
    text = request.inputs["text"]
    text.dtype = 7  # DT_STRING
    text.tensor_shape.dim.add(size=len(texts))
    text.string_val.extend(item.encode() for item in texts)
    unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(address, options=unlimited) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        try:
            response = stub.Predict(request, timeout=timeout)
        except grpc.RpcError as error:
            raise ClientError(
                f"{address} answered {error.code().name}: {error.details()}"
            ) from error
    if "translation" not in response.outputs:
        raise ClientError(f"Model {model_name} at {address} has no output named translation.")
    return [item.decode() for item in response.outputs["translation"].string_val]


def main(arguments=None):
    """Prints one translation per line.

    Returns:
        The exit code: 0, or 1 if there was no answer. A usage error ends the process with 2.
    """
    parser = argparse.ArgumentParser(prog="python -m serving.client", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="model over REST, http://HOST:PORT/v1/models/NAME")
    where.add_argument("--grpc", metavar="HOST:PORT", help="server over gRPC; add --model_name")
    parser.add_argument("--model_name", default="default", help="model for --grpc")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds (default: 60)")
    parser.add_argument("texts", nargs="+", metavar="text", help="a sentence to translate")
    flags = parser.parse_args(arguments)
    try:
        if flags.url:
            translations = translate_rest(flags.url, flags.texts, flags.timeout)
        else:
            translations = translate_grpc(flags.grpc, flags.model_name, flags.texts, flags.timeout)
    except (ClientError, ImportError) as error:
        print(f"serving.client: {error}", file=sys.stderr)
        return 1
    print("\n".join(translations))
    return 0


def _translation(url, prediction):
    text = prediction.get("translation") if isinstance(prediction, dict) else prediction
    if not isinstance(text, str):
        raise ClientError(f"The model at {url} has no output named translation.")
    return text


def _reason(error):
    body = error.read()
    try:
        return json.loads(body)["error"]
    except (KeyError, TypeError, ValueError):
        return error.reason


if __name__ == "__main__":
    sys.exit(main())
