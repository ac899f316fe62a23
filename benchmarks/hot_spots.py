"""Where a running cluster and its proxy spend their time, recorded by py-spy.

Starts the demonstration's parts with its queries, and once there are answers, samples the stacks of two parts at the
same time: the proxy, and the cluster with all Python workers that Spark has started. Java is not recorded.

    python benchmarks/hot_spots.py [--duration 60s] [--motes 64] [--format speedscope|flamegraph] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.demo.parts import Child, Children, Parts
from cluster.demo.view import GENERATED
from cluster.service.client.api_client import ApiClient
from protocols.event_log import configure_logging
from protocols.text.quantities import parse_duration_us

RESULTS = Path(__file__).parent / "results" / "profile"
ENDINGS = {"speedscope": "speedscope.json", "flamegraph": "svg"}
WHERE_TO_LOOK = {"speedscope": "open it at https://www.speedscope.app", "flamegraph": "open it in a browser"}
SAMPLES_PER_SECOND = 100
FIRST_ANSWERS_SECONDS = 120.0
HINT = "py-spy must be allowed to look into other processes: as root, or with sysctl kernel.yama.ptrace_scope=0"


def main() -> None:
    """Record, and print where the recordings are."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--duration", default="60s", help="how long to sample, once there are answers")
    arguments.add_argument("--motes", type=int, default=64)
    arguments.add_argument("--format", choices=list(ENDINGS), default="speedscope")
    arguments.add_argument("--folder", type=Path, default=RESULTS, help="for the recordings")
    options = arguments.parse_args()
    seconds = max(1, round(parse_duration_us(options.duration) / 1e6))
    configure_logging("warning")
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fjord-profile-") as folder, Children(Path(folder) / "logs") as children:
        parts = Parts.on_free_ports(children, Path(folder))
        parts.start_broker()
        cluster = parts.start_cluster()
        proxy = parts.start_proxy("roadside")
        parts.start_motes("roadside", "--motes", str(options.motes))
        parts.wait_for_stream("traffic", proxy)
        with ApiClient(parts.api_address) as api:
            for query in GENERATED.queries:
                api.add(query.sql, query.name)
            children.wait_until(
                lambda: any(api.query(query.name)["rows"] for query in GENERATED.queries),
                cluster,
                seconds=FIRST_ANSWERS_SECONDS,
            )
        print(f"sampling proxy and cluster for {seconds} s")
        recordings = [
            (subject, options.folder / f"{name}.{ENDINGS[options.format]}")
            for name, subject in (("cluster", cluster), ("proxy", proxy))
        ]
        record(recordings, seconds, options.format)
    for _, file in recordings:
        print(f"written: {file}")
    print(WHERE_TO_LOOK[options.format])


def record(recordings: list[tuple[Child, Path]], seconds: int, form: str) -> None:
    """Sample these parts and their subprocesses at the same time."""
    running = [
        subprocess.Popen(
            [
                str(Path(sys.executable).with_name("py-spy")), "record", "--subprocesses", "--nonblocking",
                "--pid", str(subject.process.pid), "--rate", str(SAMPLES_PER_SECOND), "--duration", str(seconds),
                "--format", form, "--output", str(file),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for subject, file in recordings
    ]  # fmt: skip
    outputs = [each.communicate()[0] for each in running]
    for each, output in zip(running, outputs, strict=True):
        if each.returncode:
            sys.exit(f"{output.partition('Stack backtrace')[0].rstrip()}\nhint: {HINT}")


if __name__ == "__main__":
    main()
