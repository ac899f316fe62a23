"""What `fjord security init` says that it has made: each machine's files, and its environment. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocols.deployment.folder import PASSWORDS
from protocols.deployment.identities import (
    CA,
    CA_KEY,
    KEYS,
    STATE,
    Deployment,
    environments,
    has_password,
    identities,
    identity_of,
    keys_of_machines,
    password_file,
)


def summary(deployment: Deployment, folder: str) -> dict[str, Any]:
    """Return the files of the deployment, and of each machine its files and environment.

    Parameters
    ----------
    deployment
        The deployment.
    folder
        Its path.
    """
    variables = environments(deployment, folder)
    machines: dict[str, dict[str, Any]] = {}
    for each in identities(deployment):
        machine = machines.setdefault(
            each.folder,
            {"files": [f"{folder}/{each.folder}/ca.crt"], "environment": variables.get(each.folder, {})},
        )
        machine["files"] += [f"{folder}/{each.certificate}", f"{folder}/{each.key}"]
    machines["broker"]["files"] += [f"{folder}/broker/{each}" for each in ("revoked.crl", "acl", "mosquitto.conf")]
    if deployment.broker.password_port is not None:
        machines["broker"]["files"].append(f"{folder}/broker/{PASSWORDS}")
    for part in deployment.names.parts:
        if has_password(part):
            own = identity_of(part).folder
            machines[own] = {"files": [f"{folder}/{password_file(part.name)}"], "environment": variables[own]}
    for name in variables:
        machines[name]["files"].append(f"{folder}/{name}/environment")
    keys = keys_of_machines(deployment)
    for file in keys:
        machines[file.rpartition("/")[0]]["files"].append(f"{folder}/{file}")
    kept = [f"{folder}/{each}" for each in (STATE, CA, CA_KEY)]
    kept += sorted({f"{folder}/{KEYS}/{name}" for name in keys.values()})
    return {"stays": kept, "machines": machines}


def summary_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield a summary as a person reads it."""
    yield "stays here, and is copied to no machine:"
    yield from (f"  {each}" for each in found["stays"])
    for name, machine in found["machines"].items():
        yield ""
        yield f"{name}: to its machine, readable by its user only"
        yield from (f"  {each}" for each in machine["files"])
        yield from (f"    {variable}={value}" for variable, value in machine["environment"].items())
    yield ""
    yield "The environment names files where they are now; `environment` in each folder has it, too."
    (configuration,) = (each for each in found["machines"]["broker"]["files"] if each.endswith("/mosquitto.conf"))
    yield f"The broker: mosquitto -c {configuration}"
