"""One loaded version of a model."""

import tensorflow as tf

from keras_attn.export.saved_model_files import has_own_variables

from .errors import Code, ServingError, invalid_argument

try:
    # Importing it registers the TensorFlow Text ops that the stock server has linked in. A model
    # without them needs no TensorFlow Text; one with them fails to load and names the op.
    import tensorflow_text  # noqa: F401
except ImportError:
    pass


class Servable:
    """SavedModel in a session of its own, which is how TensorFlow Serving runs one.

    The session loader gives the same signatures, pruning, time limits and error texts as the
    real server, and closing the session frees the model's memory.

    Raises:
        ServingError: if the variables are not those that the export was written with.
        Exception: what TensorFlow raises for a directory that it cannot load.
    """

    def __init__(self, name, version, path):
        if not has_own_variables(path):
            raise ServingError(
                Code.DATA_LOSS,
                "The export is damaged: the files in variables/ are not those that it was written "
                "with, by the hash in its fingerprint.pb.",
            )
        self.name = name
        self.version = version
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph)
        try:
            with graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(
                    self._session, [tf.saved_model.SERVING], path
                )
        except Exception:  # Raised again; only the session must not stay open.
            self._session.close()
            raise
        self.signatures = meta_graph.signature_def

    def run(self, feeds, fetches, request_context=None):
        """Run the graph; safe to call from many threads at once.

        Args:
            feeds: dictionary from tensor name to array.
            fetches: list of tensor names, each for an array of the list that is returned.
            request_context: `RequestContext` or None. Its time limit ends the run.
        """
        seconds = request_context.remaining() if request_context else None
        options = None
        if seconds is not None:
            options = tf.compat.v1.RunOptions(timeout_in_ms=max(int(seconds * 1000), 1))
        try:
            return self._session.run(fetches, feeds, options=options)
        except tf.errors.OpError as error:
            # Python decorates the message with a traceback of the graph's construction; the
            # server's clients read the plain message, which is the error underneath.
            plain = error.__context__ if isinstance(error.__context__, tf.errors.OpError) else error
            raise ServingError(plain.error_code, plain.message) from error
        except (TypeError, ValueError) as error:
            raise invalid_argument(str(error)) from error

    def close(self):
        """Free the model's memory."""
        self._session.close()
