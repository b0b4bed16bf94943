"""Load the versions that are wanted, swap them under load, and lend them to requests."""

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import threading
import time

from keras_attn.export.versions import find_versions

from .errors import Code, ServingError, require
from .metrics import LOAD_ATTEMPTS
from .versions import State, VersionRecord, wanted_versions

_log = logging.getLogger(__name__)
_UNLOADED = (State.START, State.LOADING)


class ModelManager:
    """Loader of models that keeps the wanted versions available.

    A new version is loaded before an old one is unloaded; an old one is unloaded after its last
    request; a version that fails to load leaves the old one serving. The polling thread loads, so
    requests never wait for it.

    Args:
        load: function of (name, version, path) that returns a `Servable`.
        max_retries: int. Attempts after the first one failed, `retry_seconds` apart.
        unavailable_labels: bool. True if a new label may point to a version that is not loaded yet.
        stopping: `threading.Event` or None. Once it is set the polling ends, after the version that
            is being loaded.
    """

    def __init__(
        self, load, max_retries=5, retry_seconds=60.0, unavailable_labels=False, stopping=None
    ):
        self._load_servable, self._unavailable_labels = load, unavailable_labels
        self._max_retries, self._retry_seconds = max_retries, retry_seconds
        self._configs = {}
        self._records = {}  # model name -> version -> VersionRecord
        self._complaints = {}  # model name -> the last complaint about its base path
        self._garbage = False  # a version was unloaded since memory was last collected
        self._lock, self._poll_lock = threading.Lock(), threading.Lock()
        self._stopping = stopping or threading.Event()

    def configure(self, configs):
        """Serve other models from the next `poll` on: `ModelConfig`s that were checked.

        If a label points to a version that is not available, nothing changes.
        """
        with self._lock:
            for config in configs:
                self._check_labels(config)
            self._configs = {config.name: config for config in configs}

    def poll(self):
        """List every base path once, load new versions and unload those that are not wanted."""
        with self._poll_lock:
            with self._lock:
                names = [*self._configs, *(self._records.keys() - self._configs.keys())]
            for name in names:
                if self._stopping.is_set():
                    return
                self._poll_model(name)
            if self._garbage:
                # A graph's objects refer to one another; Python would collect them too late.
                self._garbage = False
                gc.collect()

    def poll_every(self, seconds):
        """Poll in the background until `stopping` is set."""

        def poll():
            while not self._stopping.wait(seconds):
                try:
                    self.poll()
                except Exception:  # The next poll may succeed.
                    _log.exception("Looking for versions failed")

        threading.Thread(target=poll, name="poll-versions", daemon=True).start()

    @contextlib.contextmanager
    def use(self, model_spec):
        """Lend the servable that a `ModelSpec` names; it stays loaded until the block ends."""
        with self._lock:
            record = self._find(model_spec)
            record.users += 1
        try:
            yield record.servable
        finally:
            with self._lock:
                record.users -= 1
                servable = self._take_if_unused(record)
            if servable:
                _close_apart(servable)

    def names(self):
        """Return the names of the models to serve, sorted."""
        with self._lock:
            return sorted(self._configs)

    def knows(self, name):
        """Return True if a model has versions, loaded or not."""
        with self._lock:
            return bool(self._records.get(name))

    def versions(self, name):
        """Return copies of a model's `VersionRecord`s, the newest first, or an empty list."""
        with self._lock:
            records = self._records.get(name, {})
            return [dataclasses.replace(records[key]) for key in sorted(records, reverse=True)]

    def _labels(self, name):
        return self._configs[name].version_labels if name in self._configs else {}

    def _check_labels(self, config):
        records, before = self._records.get(config.name, {}), self._labels(config.name)
        for label, version in config.version_labels.items():
            if version in records and records[version].loaded:
                continue
            moved = label in before and before[label] != version
            if moved or not self._unavailable_labels:
                request = f"Request to assign label to version {version} of model {config.name}"
                message = f"{request}, which is not currently available for inference"
                raise ServingError(Code.FAILED_PRECONDITION, message)

    def _find(self, model_spec):
        name = model_spec.name
        require(name, "ModelSpec has no name specified.")
        choice = model_spec.WhichOneof("version_choice")
        version = model_spec.version.value if choice == "version" else None
        if choice == "version_label":
            label, labels = model_spec.version_label, self._labels(name)
            require(label in labels, f"Unrecognized servable version label: {label}")
            version = labels[label]
        loaded = {key: x for key, x in self._records.get(name, {}).items() if x.loaded}
        record = loaded.get(max(loaded, default=None) if version is None else version)
        if record:
            return record
        request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ServingError(Code.NOT_FOUND, f"Servable not found for request: {request}")

    def _poll_model(self, name):
        config = self._configs.get(name)
        try:
            available = find_versions(config.base_path) if config else {}
        except OSError as error:
            self._complain(name, f"Could not find base path {config.base_path}: {error.strerror}")
            return
        wanted = wanted_versions(available, config.model_version_policy) if config else []
        if config and not wanted:
            self._complain(name, f"No versions of servable {name} found under {config.base_path}")
        else:
            self._complaints.pop(name, None)
        records = self._want(name, {version: available[version] for version in wanted})
        for record in records:
            is_due = record.wanted and time.monotonic() >= record.next_attempt
            if is_due and record.state in _UNLOADED and not self._stopping.is_set():
                self._load(name, record)
        self._retire(records)

    def _want(self, name, paths):
        """Mark the wanted versions; a version that ended and came back starts again.

        Its directory may have come back before it ended, while its last requests ran.
        """
        with self._lock:
            records = self._records.setdefault(name, {})
            for version, path in paths.items():
                record = records.get(version)
                if not record or record.ended and (record.code == Code.OK or not record.wanted):
                    records[version] = VersionRecord(version, path)
            for version, record in records.items():
                record.wanted = version in paths
            return [records[version] for version in sorted(records, reverse=True)]

    def _load(self, name, record):
        record.state = State.LOADING
        shown = f"version {record.version} of {name}"
        _log.info("Loading %s", shown)
        try:
            servable = self._load_servable(name, record.version, record.path)
            LOAD_ATTEMPTS.add(record.path, "success")
        except Exception as error:  # a SavedModel comes from outside and may fail in any way
            LOAD_ATTEMPTS.add(record.path, "fail")
            with self._lock:
                record.failures += 1
                record.next_attempt = time.monotonic() + self._retry_seconds
                record.code = error.code if isinstance(error, ServingError) else Code.UNKNOWN
                record.message = _message(error, record.path)
                if record.failures > self._max_retries:
                    record.state = State.END
            attempt = f"attempt {record.failures} of {self._max_retries + 1}"
            _log.error("Loading %s failed (%s): %s", shown, attempt, record.message.split("\n")[0])
            return
        with self._lock:
            record.servable, record.state = servable, State.AVAILABLE
            record.code, record.message = Code.OK, ""
        _log.info("Version %d of %s is available", record.version, name)

    def _retire(self, records):
        """Unload what is not wanted, unless it is the last version that can answer."""
        with self._lock:
            unwanted = _unwanted(records)
            for record in unwanted:
                record.state = State.UNLOADING
            unused = [self._take_if_unused(record) for record in unwanted]
            for record in records:
                if not record.wanted and record.state in _UNLOADED:
                    record.state = State.END
        for servable in unused:
            _close(servable)

    def _take_if_unused(self, record):
        """Return the servable to close if its version is unloaded and no request uses it."""
        if record.state != State.UNLOADING or record.users:
            return None
        servable, record.servable, record.state = record.servable, None, State.END
        self._garbage = True
        return servable

    def _complain(self, name, complaint):
        if self._complaints.get(name) != complaint:
            self._complaints[name] = complaint
            _log.warning(complaint)


def _unwanted(records):
    """Return the loaded versions to unload: all but one while none of the wanted is loaded."""
    unwanted = [record for record in records if record.loaded and not record.wanted]
    wanted = [record.loaded for record in records if record.wanted]
    return unwanted[1:] if wanted and not any(wanted) else unwanted


def _close_apart(servable):
    """Free a model's memory, on a thread if this is an event loop's: it may take seconds."""
    try:
        asyncio.get_running_loop().run_in_executor(None, _close, servable)
    except RuntimeError:  # no running event loop
        _close(servable)


def _close(servable):
    """Free a model's memory, without the lock that every request takes."""
    try:
        if servable:
            servable.close()
    except Exception:  # The request that was its last one has its answer.
        _log.exception("Version %d of %s was not closed", servable.version, servable.name)


def _message(error, path):
    """Return an error's message, with the path as text where TensorFlow prints its `repr`."""
    as_bytes = repr(os.fsencode(path)).rstrip("\"'")
    return str(error).replace(as_bytes, as_bytes[1] + path) or type(error).__name__
