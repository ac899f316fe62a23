"""What `fjord security show` shows: whose certificates there are, and when they expire. Pure."""

from __future__ import annotations

from typing import Any

from protocols.deployment.identities import AUTHORITY, CA, Deployment, identities
from protocols.security.pem_files import date_text
from protocols.security.tls import DAY_SECONDS


def expiry_report(deployment: Deployment, now: float) -> list[dict[str, Any]]:
    """Return a line for each certificate in use, and one for each name that has been revoked.

    Parameters
    ----------
    deployment
        The deployment.
    now
        Seconds since 1970.
    """
    places = {AUTHORITY: ("authority", CA)} | {
        each.name: (each.role, each.certificate) for each in identities(deployment)
    }
    found = []
    for name, (role, file) in places.items():
        newest = deployment.newest(name)
        if newest is not None:
            days = int((newest.expires - now) // DAY_SECONDS)
            found.append(
                {
                    "name": name,
                    "role": role,
                    "expires": date_text(newest.expires),
                    "days_left": days,
                    "left": str(days) if newest.expires > now else "expired",
                    "file": file,
                    "revoked": False,
                }
            )
    gone = {each.name: each for each in deployment.issued if each.revoked is not None and each.name not in places}
    for name, each in gone.items():
        found.append(
            {
                "name": name,
                "role": "",
                "expires": date_text(each.expires),
                "days_left": int((each.expires - now) // DAY_SECONDS),
                "left": "revoked",
                "file": "",
                "revoked": True,
            }
        )
    return found
