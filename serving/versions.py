"""Which versions of a model a base path holds, and which of them its policy wants."""

import os
import re

_MAX_VERSION = 2**63 - 1


def find_versions(base_path):
    """Sub-directories whose names are integers (leading zeros allowed).

    Args:
        base_path: string. Directory that holds one sub-directory per version.

    Returns:
        Dictionary from version number to the sub-directory's path.

    Raises:
        OSError: if the base path cannot be listed.
    """
    found = {}
    with os.scandir(base_path) as children:
        for child in children:
            if re.fullmatch(r"[0-9]+", child.name) and child.is_dir():
                version = int(child.name)
                if version <= _MAX_VERSION:
                    found[version] = child.path
    return found


def wanted_versions(found, policy):
    """The versions that a policy wants among those found.

    Args:
        found: dictionary from version number to path.
        policy: `ServableVersionPolicy` proto: `latest` (one version unless it says more, and
            also when nothing is set), `all` or `specific`.

    Returns:
        List of version numbers, the newest first.
    """
    newest_first = sorted(found, reverse=True)
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return newest_first
    if choice == "specific":
        return [version for version in newest_first if version in policy.specific.versions]
    return newest_first[: max(policy.latest.num_versions, 1)]
