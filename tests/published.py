"""Published releases that tests run, fetched if they are not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvgate.adapters.ascend_wheel import PACKAGE, AscendUnavailableError, ascend_folder
from kvgate.adapters.fetching import fetch
from kvgate.adapters.releases import ASCEND
from kvgate.adapters.releases.description import Published
from kvgate.kernel.errors import SystemUnavailableError

REQUIRED = "KVGATE_TESTS_RELEASES_REQUIRED"
"""Set in a run that names the modules it needs, as ``.ci/run`` does: it is red where a release cannot be fetched."""


def published(release: Published = ASCEND) -> Path:
    """The folder with the files of ``release``; a test that cannot have it is skipped, and in ``.ci/run`` it fails."""
    try:
        return ascend_folder(release) if release.package == PACKAGE else fetch(release)
    except (AscendUnavailableError, SystemUnavailableError) as error:
        message = f"{release.name} cannot be fetched, and nothing of it was tested: {error}"
        if REQUIRED in os.environ:
            pytest.fail(message)
        pytest.skip(message)
