"""Metrics and log events of what has happened to a mote."""

from __future__ import annotations

from protocols.event_log import get_logger
from proxy.motes.mote_events import (
    ClockRight,
    ClockWrong,
    MoteInstruction,
    PacketsLost,
    ProgramNotTakenUp,
    Rebooted,
    SilenceEnded,
    WentSilent,
)
from proxy.running.metrics import ProxyMetrics

log = get_logger(__name__)


def report(mote: str, instruction: MoteInstruction, metrics: ProxyMetrics) -> None:
    """Count and log an instruction, if it reports something unusual."""
    match instruction:
        case PacketsLost(count):
            metrics.count("packets_lost", by=count)
            log.debug("packets lost", mote=mote, packets=count)
        case Rebooted(boot):
            metrics.count("mote_reboots")
            log.info("mote rebooted", mote=mote, boot=boot)
        case WentSilent(after_us):
            metrics.count("motes_silent_times")
            log.warning("mote is silent", mote=mote, seconds=after_us / 1e6)
        case SilenceEnded():
            log.info("mote sends again", mote=mote)
        case ClockWrong(fault, by_us):
            metrics.count("motes_wrong_clock_times", fault)
            log.warning(
                "mote's clock is wrong: the watermark moves on",
                mote=mote,
                fault=fault,
                seconds=by_us / 1e6,
            )
        case ClockRight():
            log.info("mote's clock is right again", mote=mote)
        case ProgramNotTakenUp(attempts):
            metrics.count("motes_unresponsive")
            log.warning("mote does not start its program", mote=mote, attempts=attempts)
