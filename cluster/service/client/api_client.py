"""A small client of the HTTP API, for the command line and the demonstration."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx

from cluster.errors import ClusterError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from protocols.security.tls import TlsFiles

TIMEOUT_SECONDS = 60.0
ADDING_SECONDS = 3600.0
"""How long many queries may take to be added together."""
HINTS = {
    401: "set FJORD_API_TOKEN to a token of this cluster",
    403: "ask the operator of the cluster for a token that allows this, and set FJORD_API_TOKEN",
    421: "call the cluster by its address, or start it with --api-allowed-host NAME",
}
"""What to do if something before the cluster, such as a reverse proxy, refuses a request without a hint."""


class ApiUnreachableError(ClusterError):
    """No cluster responds at the address."""


class RefusedError(ClusterError):
    """The cluster rejected a request; holds the underlined part of the query, if there is one."""

    def __init__(self, body: dict[str, Any], status: int | None = None) -> None:
        underlined = body.get("underlined")
        message = str(body.get("message") or "the cluster rejected the request without a reason")
        others = tuple(RefusedError(each) for each in body.get("others") or () if isinstance(each, dict))
        alone = f"{message}\n{underlined}" if underlined else message
        hint = body.get("hint")
        self.alone = f"{alone}\nhint:  {hint}" if hint else alone
        """The message with its hint, without those of others."""
        if others:
            super().__init__("\n".join([self.alone, *(each.alone for each in others)]))
        else:
            super().__init__(alone, hint=hint)
        self.kind = str(body.get("error", ""))
        self.status = status
        """The status of HTTP."""
        self.line = body.get("line")
        self.column = body.get("column")
        self.row = body.get("row")
        self.others = others
        """More that was rejected for the same request: queries that were to be added together."""


class ApiClient:
    """A client of one cluster; use it as a context.

    Parameters
    ----------
    address
        Such as ``http://127.0.0.1:8642``.
    token
        Sent with every request, if given.
    tls
        Files for an address that begins with ``https:``; None for the authorities of the system.
    """

    def __init__(self, address: str, *, token: str | None = None, tls: TlsFiles | None = None) -> None:
        self._address = address
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        _check_address(address)
        # Certificate authorities take long to load: only for addresses that have a certificate.
        verify: ssl.SSLContext | bool = address.lower().startswith("https:")
        if verify and tls is not None:
            from protocols.security.tls import client_context  # noqa: PLC0415 - most clients have no files

            verify = client_context(tls)
        try:
            self._http = httpx.Client(
                base_url=address, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False, verify=verify
            )
        except httpx.InvalidURL as error:
            raise ApiUnreachableError(
                f"{address!r} is not an address: {error}", hint="write http://HOST:PORT"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def add(self, sql: str, name: str | None = None, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Start a query, with values for its parameters."""
        body = {"sql": sql, "name": name, "parameters": dict(parameters or {})}
        return dict(self._request("POST", "/v1/queries", json=body).json())

    def add_together(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        rows: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[dict[str, Any]]:
        """Start all queries of a text, or none; see `POST /v1/queries/together`."""
        timeout = httpx.Timeout(TIMEOUT_SECONDS, read=ADDING_SECONDS)
        body = {"sql": sql, "parameters": dict(parameters or {}), "rows": rows}
        return list(self._request("POST", "/v1/queries/together", json=body, timeout=timeout).json()["queries"])

    def queries(self) -> list[dict[str, Any]]:
        """Return all running queries."""
        return list(self._request("GET", "/v1/queries").json())

    def query(self, name: str) -> dict[str, Any]:
        """Return one query, running or waiting."""
        return dict(self._request("GET", f"/v1/queries/{_quoted(name)}").json())

    def drop(self, name: str) -> None:
        """End a query."""
        self._request("DELETE", f"/v1/queries/{_quoted(name)}")

    def running_plan(self, name: str) -> str:
        """Return the plan of a running query as text, with estimates and measurements."""
        return self._request("GET", f"/v1/queries/{_quoted(name)}/plan").text

    def explain(self, sql: str, parameters: Mapping[str, Any] | None = None) -> str:
        """Return how a query would be run, as text."""
        return self._request("POST", "/v1/explain", json={"sql": sql, "parameters": dict(parameters or {})}).text

    def explain_energy(self, sql: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what a query would cost motes; see :class:`cluster.service.billing.energy_report.EnergyAnswer`."""
        body = {"sql": sql, "parameters": dict(parameters or {})}
        return dict(self._request("POST", "/v1/explain/energy", json=body).json())

    def bill(self) -> dict[str, Any]:
        """Return each query's share of the energy of motes; see :class:`cluster.service.billing.bill.Bill`."""
        return dict(self._request("GET", "/v1/bill").json())

    def results(self, name: str, *, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """Return stored rows of a query with a higher sequence number than `after`."""
        return list(
            self._request("GET", f"/v1/queries/{_quoted(name)}/results", params={"after": after, "limit": limit}).json()
        )

    def streams(self) -> list[dict[str, Any]]:
        """Return all streams."""
        return list(self._request("GET", "/v1/streams").json())

    def sensors(self, *, where: str | None = None, sql: str | None = None) -> dict[str, Any]:
        """Return ``columns`` and ``rows``: sensors for which a condition holds, or the answer to a SELECT over them."""
        parameters = {name: text for name, text in (("where", where), ("sql", sql)) if text is not None}
        return dict(self._request("GET", "/v1/sensors", params=parameters).json())

    def plan(self, kind: str = "text") -> str:
        """Return the shared plan as text, or as a graph for Mermaid or Graphviz (``mermaid``, ``dot``)."""
        return self._request("GET", "/v1/plan", params={"format": kind}).text

    def plan_difference(self, since: int | None = None) -> str:
        """Return what has changed of the shared plan since an epoch, by default the one before."""
        return self._request("GET", "/v1/plan/difference", params={} if since is None else {"since": since}).text

    def plan_history(self, last: int) -> list[dict[str, Any]]:
        """Return what the last epochs changed in the shared plan, oldest first."""
        return list(self._request("GET", "/v1/plan/history", params={"last": last}).json())

    def alternatives(self, name: str, most: int) -> list[dict[str, Any]]:
        """Return the plans with which a query could go on, cheapest first."""
        return list(self._request("GET", f"/v1/queries/{_quoted(name)}/alternatives", params={"most": most}).json())

    def migrate(self, name: str, number: int, deadline_seconds: float | None = None) -> dict[str, Any]:
        """Let a query go on with one of its plans, and return how that goes."""
        body = {"to": number, "deadline_seconds": deadline_seconds}
        return dict(self._request("POST", f"/v1/queries/{_quoted(name)}/migrate", json=body).json())

    def migrations(self) -> list[dict[str, Any]]:
        """Return the queries that go on with another plan."""
        return list(self._request("GET", "/v1/migrations").json())

    def operators(self) -> list[dict[str, Any]]:
        """Return the counters of the operators of the shared plan."""
        return list(self._request("GET", "/v1/plan/operators").json())

    def declare(self, sql: str) -> str:
        """Execute CREATE STREAM or DROP STREAM; return the stream's name."""
        return str(self._request("POST", "/v1/streams", json={"sql": sql}).json()["name"])

    def drop_stream(self, name: str) -> None:
        """Drop a stream and its table."""
        self._request("DELETE", f"/v1/streams/{_quoted(name)}")

    def keep_stream(self, name: str, *, age_seconds: float | None, size: int | None) -> None:
        """Set the budget of a stream; None means no bound."""
        self._request("PUT", f"/v1/streams/{_quoted(name)}/budget", json={"age_seconds": age_seconds, "bytes": size})

    def set_gone_after(self, name: str, seconds: float | None) -> None:
        """Set after how many seconds a stream goes on without a proxy that is gone; None for never."""
        self._request("PUT", f"/v1/streams/{_quoted(name)}/gone-after", json={"seconds": seconds})

    def reset_gone_after(self, name: str) -> None:
        """Let a stream go on without proxies that are gone as the cluster's settings say."""
        self._request("DELETE", f"/v1/streams/{_quoted(name)}/gone-after")

    def keep_stream_as_others(self, name: str) -> None:
        """Give a stream the cluster's default budget."""
        self._request("DELETE", f"/v1/streams/{_quoted(name)}/budget")

    def functions(self) -> list[dict[str, Any]]:
        """Return all functions."""
        return list(self._request("GET", "/v1/functions").json())

    def declare_function(self, sql: str) -> dict[str, Any]:
        """Execute CREATE FUNCTION or DROP FUNCTION; return the function."""
        return dict(self._request("POST", "/v1/functions", json={"sql": sql}).json())

    def drop_function(self, name: str) -> None:
        """Drop a function."""
        self._request("DELETE", f"/v1/functions/{_quoted(name)}")

    def relations(self) -> list[dict[str, Any]]:
        """Return all relations."""
        return list(self._request("GET", "/v1/relations").json())

    def relation(self, name: str) -> dict[str, Any]:
        """Return one relation."""
        return dict(self._request("GET", f"/v1/relations/{_quoted(name)}").json())

    def declare_relation(self, sql: str) -> dict[str, Any]:
        """Execute CREATE RELATION or DROP RELATION; return the relation."""
        return dict(self._request("POST", "/v1/relations", json={"sql": sql}).json())

    def drop_relation(self, name: str) -> None:
        """Drop a relation."""
        self._request("DELETE", f"/v1/relations/{_quoted(name)}")

    def status(self) -> dict[str, Any]:
        """Return the status of the cluster."""
        return dict(self._request("GET", "/v1/status").json())

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **arguments)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if reason := _refusal(error):
                raise ApiUnreachableError(
                    f"no connection to the API at {self._address}: {reason}",
                    hint="FJORD_API_CA names the authority of its certificate, FJORD_API_CLIENT_CERTIFICATE and "
                    "FJORD_API_CLIENT_KEY what it is shown",
                ) from error
            raise ApiUnreachableError(
                f"no cluster answers at {self._address}: {error}",
                hint="start one with `fjord cluster`, or name another with --api",
            ) from error
        if response.is_error:
            try:
                body = response.json()
            except ValueError:
                body = {"message": f"the cluster answered {response.status_code} {response.reason_phrase}"}
            found = body if isinstance(body, dict) else {"message": str(body)}
            raise RefusedError(
                {**found, "hint": found.get("hint") or HINTS.get(response.status_code)}, response.status_code
            )
        if response.headers.get("content-type", "").startswith("text/html"):
            raise ApiUnreachableError(
                f"the server at {self._address} is not a cluster", hint="name the cluster's address with --api"
            )
        return response


def _refusal(error: BaseException) -> str | None:
    """Return why TLS failed; None if something else did."""
    import ssl  # noqa: PLC0415 - takes long to load

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            from protocols.security.refusals import refusal_text  # noqa: PLC0415 - most connections have no TLS

            return refusal_text(cause)
        cause = cause.__cause__ or cause.__context__
    return None


def _check_address(address: str) -> None:
    scheme, found, host = address.partition("://")
    if address and not found:
        raise ApiUnreachableError(f"{address!r} is not an address of a cluster", hint=f"write http://{address}")
    if scheme.lower() not in ("http", "https") or not host:
        raise ApiUnreachableError(f"{address!r} is not an address of a cluster", hint="write http://HOST:PORT")


def _quoted(name: str) -> str:
    """Return a name as one part of a path, whatever is in it."""
    return quote(name, safe="")
