"""Redis: version, and that it neither forgets nor throws away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamtopic.service.doctor.finding import Finding, fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.service.parts import Parts

__all__ = ["examine_redis"]

OLDEST = (6, 2)
FULL = 0.8
SKEW = 5.0  # seconds


def examine_redis(parts: Parts) -> Iterator[Finding]:
    """Look at the server itself."""
    connection = parts.connection
    info = connection.information()
    version = str(info["redis_version"])
    where = f"{connection.address}, {info.get('server_name', 'redis')} {version}"
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        yield fail("redis", where, "use Redis 6.2 or later, or Valkey")
    elif info["role"] != "master":
        yield fail("redis", f"{where}, a replica", "set redis_url to the primary")
    else:
        yield ok("redis", where)
    yield _policy(info)
    yield from _memory(info)
    yield _persistence(info)
    seconds, micros = connection.call("TIME")
    skew = parts.clock() - (int(seconds) + int(micros) / 1e6)
    if abs(skew) > SKEW:
        yield warn("clock", f"this machine is {skew:+.0f} s from Redis", "run NTP on both: receipts carry these times")
    else:
        yield ok("clock", f"this machine is {skew:+.1f} s from Redis")


def _policy(info: dict[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return ok("eviction", "maxmemory-policy noeviction")
    remedy = (
        "CONFIG SET maxmemory-policy noeviction, and in redis.conf: any other throws counts away when memory is full"
    )
    return fail("eviction", f"maxmemory-policy {policy}", remedy)


def _memory(info: dict[str, Any]) -> Iterator[Finding]:
    used, limit = int(info["used_memory"]), int(info.get("maxmemory", 0))
    shown = f"{used / 2**20:,.0f} MiB used"
    if not limit:
        yield ok("memory", f"{shown}, no maxmemory of its own")
    elif used > FULL * limit:
        yield warn(
            "memory", f"{shown} of {limit / 2**20:,.0f} MiB", "raise maxmemory: at the limit ingest stands still"
        )
    else:
        yield ok("memory", f"{shown} of {limit / 2**20:,.0f} MiB")


def _persistence(info: dict[str, Any]) -> Finding:
    name = "persistence"
    if not info.get("aof_enabled"):
        remedy = "CONFIG SET appendonly yes, and in redis.conf: without it a restart sets counts and receipts back"
        return fail(name, "the append-only file is off", remedy)
    if info.get("aof_last_write_status") != "ok":
        return fail(name, "the append-only file cannot be written", "see Redis's log; is its disk full?")
    return ok(name, "append-only file on")
