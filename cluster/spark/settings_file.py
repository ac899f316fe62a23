"""Settings of Spark in a file of its own form, ``spark-defaults.conf``: addresses of machines, and a secret.

# a comment
spark.authenticate.secret   k7x...
spark.driver.host=10.0.0.5
"""

from __future__ import annotations

import re
from pathlib import Path

from cluster.errors import ClusterError
from protocols.text.plain_text import read_text_file

_ENTRY = re.compile(r"(?P<name>[^\s=:]+)(?:\s*[=:]\s*|\s+)(?P<value>\S.*)")
_OWN = ("spark.sql.", "spark.app.name", "spark.master", "spark.python.", "spark.local.dir", "spark.driver.memory")
"""What answers, state and their speed depend on, or what has an option of `fjord cluster`."""
MOST_BYTES = 1_000_000


def read_spark_settings(path: Path) -> dict[str, str]:
    """Return the settings in a file. Errors never quote values: one may be the secret.

    Raises
    ------
    ClusterError
        If a line is none, or sets what Fjord sets; names the line.
    SettingsError
        If the file cannot be read.
    """
    text = read_text_file(path, "Spark's settings")
    if len(text) > MOST_BYTES:
        raise ClusterError(f"{path} is too long for settings of Spark", hint=f"they have {MOST_BYTES:,} bytes at most")
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        parts = _ENTRY.fullmatch(entry)
        if parts is None or not parts["name"].startswith("spark."):
            raise ClusterError(
                f"line {number} of {path} is no setting of Spark",
                hint="a line has a name and a value: spark.driver.host 10.0.0.5",
            )
        name = parts["name"]
        if name.startswith(_OWN):
            raise ClusterError(
                f"line {number} of {path}: {name} is set by Fjord",
                hint="leave it out; `fjord cluster --help` has what can be chosen",
            )
        found[name] = parts["value"].strip()
    return found
