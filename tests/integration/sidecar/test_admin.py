"""What an operator may change while everything runs."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal

import yaml
from structlog.testing import capture_logs

from tests.integration.servers import PATIENCE, wait_until
from tests.integration.sidecar.conftest import backend, quickest, snapshot, until
from tests.integration.sidecar.test_snapshot import put_lease
from tokenweir.contract import names


async def test_a_backend_is_added_changed_drained_and_removed_without_a_restart(
    write_config, start_sidecar, store, engines
):
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))
    http = sidecar.http
    added = await http.post("/api/backends", json={"id": "b", "url": engines(model="n").url, "gpu": "H100"})
    assert added.status_code == 201
    assert await until(lambda: backend(store, "b").get("state") == "ready", what="b ready") < 3
    assert backend(store, "b")["models"] == {"n": "n"}

    changed = await http.patch("/api/backends/b", json={"weight": 3, "role": "standby"})
    assert changed.json()["configuration"]["weight"] == 3
    await until(lambda: backend(store, "b")["weight"] == 3, what="the weight")
    assert (backend(store, "b")["state"], backend(store, "b")["role"]) == ("ready", "standby")
    await http.patch("/api/backends/b", json={"weight": None})
    await until(lambda: backend(store, "b")["weight"] == 1, what="the default weight")

    await http.post("/api/backends/b/drain")
    await until(lambda: backend(store, "b")["state"] == "draining", what="draining")
    drained = "draining: no gateway reports, so nobody knows what is in flight"
    assert (await http.get("/api/backends/b")).json()["reason"] == drained
    assert drained in [row["reason"] for row in (await http.get("/api/fleet")).json()["backends"]]
    await http.post("/api/backends/b/undrain")
    await until(lambda: backend(store, "b")["state"] == "ready", what="ready again")

    assert (await http.delete("/api/backends/b?now=true")).status_code == 204
    await until(lambda: not backend(store, "b"), what="b gone")
    assert backend(store, "a")["state"] == "ready"


async def test_each_accepted_change_is_a_line_of_the_log_with_where_it_came_from(
    write_config, start_sidecar, engines
):
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))
    http = sidecar.http
    with capture_logs() as lines:
        await http.post("/api/backends/a/drain")
        await http.post("/api/backends/a/drain")
        await http.post("/api/backends/a/undrain")
        await http.post("/api/backends/nobody/drain")
        await http.patch("/api/backends/a", json={"weight": 3})
        await http.patch("/api/backends/a", json={"weight": "much"})
        await http.put("/api/policy", json={"policy": "round_robin"})
        await http.put("/api/policy", json={"policy": "best"})
        await http.post("/api/settings/reload")
        await http.post("/api/backends", json={"id": "b", "url": engines(model="n").url})
        await http.delete("/api/backends/b?now=true")
    told = [line for line in lines if line["event"] == "admin_change"]
    assert {line.pop("address") for line in told} == {"127.0.0.1"}
    assert [{k: v for k, v in line.items() if k not in {"event", "log_level"}} for line in told] == [
        {"change": "drain", "backend": "a"},
        {"change": "undrain", "backend": "a"},
        {"change": "change", "backend": "a", "members": ["weight"]},
        {"change": "policy", "policy": "round_robin", "serve_by": "round_robin"},
        {"change": "reload"},
        {"change": "add", "backend": "b"},
        {"change": "remove", "backend": "b", "now": True},
    ]


async def test_a_removed_backend_leaves_when_its_last_request_has_ended(
    write_config, start_sidecar, store, engines
):
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))
    put_lease(store, a=1)
    await until(lambda: sidecar.plane.gateways.in_flight("a") == 1, what="the lease")
    answer = await sidecar.http.delete("/api/backends/a")
    assert (answer.status_code, answer.json()["leaving"]) == (202, True)
    await until(lambda: backend(store, "a").get("state") == "draining", what="draining")
    for _ in range(13):
        put_lease(store, a=1)
        await asyncio.sleep(0.1)
    assert backend(store, "a")["state"] == "draining"
    put_lease(store)
    await until(lambda: snapshot(store) and not backend(store, "a"), what="its end")


async def test_changes_survive_a_restart(write_config, start_sidecar, store, engines):
    path = write_config("one", backends=[{"id": "a", "url": engines().url}])
    first = await start_sidecar(path)
    await first.http.post("/api/backends", json={"id": "b", "url": engines().url})
    await first.http.post("/api/backends/a/drain")
    await first.http.put("/api/policy", json={"policy": "round_robin"})
    await first.plane.stop()
    store.flushall()
    second = await start_sidecar(path)
    await until(lambda: backend(store, "b").get("state") == "ready", what="b ready")
    assert backend(store, "a")["state"] == "draining"
    assert snapshot(store)["policy"] == "round_robin"
    assert (await second.http.get("/api/policy")).json()["serves"] == "round_robin"


async def test_the_policy_is_switched_in_a_second_by_whichever_sidecar_is_asked(
    write_config, start_sidecar, store, engines
):
    url = engines().url
    leader = await start_sidecar(write_config("one", backends=[url]))
    await until(lambda: snapshot(store), what="a snapshot")
    follower = await start_sidecar(write_config("two", backends=[url]))
    await until(lambda: follower.plane.leader.holder == leader.plane.id, what="a follower")
    shadow = await follower.http.put(
        "/api/policy", json={"policy": "shadow:hybrid", "serve_by": "least_conn"}
    )
    assert shadow.status_code == 200
    assert await until(lambda: snapshot(store)["shadow"] == "hybrid", what="the shadow policy") < 1
    assert snapshot(store)["policy"] == "least_conn"

    async def switch(sidecar, policy):
        await sidecar.http.put("/api/policy", json={"policy": policy})
        return await until(lambda: snapshot(store)["policy"] == policy, what=policy)

    policies = itertools.cycle(["round_robin", "predictive"])
    assert await quickest(lambda: switch(follower, next(policies)), enough=1) < 1
    assert await quickest(lambda: switch(leader, next(policies)), enough=0.5) < 0.5


async def test_a_takeover_does_not_undo_a_change(write_config, start_sidecar, store, engines):
    url = engines().url
    leader = await start_sidecar(write_config("one", backends=[{"id": "a", "url": url}]))
    await until(lambda: snapshot(store), what="a snapshot")
    path = write_config("two", backends=[{"id": "a", "url": url}])
    follower = await start_sidecar(path)
    await leader.http.post("/api/backends/a/drain")
    kept = path.with_name("tokenweir.state.json")
    await until(lambda: kept.exists() and "drain:a" in kept.read_text(), what="the follower's file")
    await leader.plane.stop()
    await until(lambda: follower.plane.publisher.published, what="the takeover")
    assert backend(store, "a")["state"] == "draining"


async def test_a_change_while_redis_is_away_is_kept_and_published_later(
    write_config, start_sidecar, redis_server, store, engines
):
    from tests.integration.sidecar.conftest import add_user

    path = write_config("one", backends=[{"id": "a", "url": engines().url}])
    sidecar = await start_sidecar(path)
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    redis_server.stop()
    assert (await sidecar.http.post("/api/backends/a/drain")).status_code == 200
    assert "drain:a" in path.with_name("tokenweir.state.json").read_text()
    redis_server.start()
    add_user(redis_server.client())
    await until(lambda: backend(store, "a").get("state") == "draining", what="the drain")
    await until(lambda: "drain:a" in str(store.get(names.CHANGES)), what="the change in Redis")


async def test_a_key_file_that_goes_takes_its_backend_out_and_nothing_else(
    write_config, start_sidecar, store, engines
):
    backends = [{"id": "a", "url": engines().url, "api_key_file": "a.key"}, {"id": "b", "url": engines().url}]
    path = write_config("one", backends=backends)
    sidecar = await start_sidecar(path)
    await until(lambda: backend(store, "b").get("state") == "ready", what="b ready")
    await until(lambda: backend(store, "a").get("state") == "down", what="a down")
    assert "a.key: No such file" in " ".join(backend(store, "a")["reasons"])
    assert (await sidecar.http.post("/api/backends/b/drain")).status_code == 200
    (path.parent / "a.key").write_text("sk-a")
    await until(lambda: backend(store, "a").get("state") == "ready", what="a ready")
    (path.parent / "a.key").write_text("two lines\nof text")
    await until(lambda: backend(store, "a").get("state") == "down", what="a down again")


async def test_the_file_is_read_again_on_demand(write_config, start_sidecar, store, engines):
    one, other = engines(), engines()
    path = write_config("one", backends=[{"id": "a", "url": one.url}])
    sidecar = await start_sidecar(path)
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    document = yaml.safe_load(path.read_text())
    document["backends"].append({"id": "b", "url": other.url})
    document["queue"] = {"max_waiting": 5}
    path.write_text(yaml.safe_dump(document))
    document["limits"] = {"body_max": "8MiB", "deadline": "1m"}
    document["log"] = {"level": "debug"}
    path.write_text(yaml.safe_dump(document))
    answer = await sidecar.http.post("/api/settings/reload")
    assert (answer.status_code, answer.json()["pending"]) == (200, ["log", "limits.body_max"])
    await until(lambda: backend(store, "b").get("state") == "ready", what="b ready")
    assert snapshot(store)["queue"]["max_waiting"] == 5
    path.write_text("backends: [{wrong: 1}]")
    answer = await sidecar.http.post("/api/settings/reload")
    assert answer.status_code == 422
    assert "`backends[0].wrong`" in " ".join(answer.json()["error"]["problems"])
    assert await sidecar.state("b") == "ready"


def test_a_hang_up_reads_the_file_again_and_logs_are_json_lines(write_config, start_process, store, engines):
    path = write_config("one", backends=[{"id": "a", "url": engines().url}])
    process = start_process(path)
    wait_until(process.leads, what="a leader")
    path.write_text(path.read_text() + "policy: least_conn\n")
    process.signal(signal.SIGHUP)
    wait_until(lambda: snapshot(store)["policy"] == "least_conn", what="the policy of the file")
    events = [json.loads(line)["event"] for line in process.log.read_text().splitlines()]
    assert {"sidecar_started", "leading", "settings_published", "configuration_read"} <= set(events)


def test_a_configuration_with_an_error_is_refused_with_the_key(write_config, start_process):
    path = write_config("one", backends=[{"url": "nonsense"}])
    process = start_process(path)
    assert process.process.wait(PATIENCE) == 2
    assert "backends[0].url" in process.log.read_text()


async def test_the_sidecar_keeps_its_files_to_itself(write_config, start_sidecar, store, engines):
    path = write_config("one", backends=[engines().url])
    sidecar = await start_sidecar(path)
    await until(lambda: store.get(names.STATS), what="stats")
    sidecar.plane.completions.save()
    for file in (path.parent / "var").iterdir():
        assert file.stat().st_mode & 0o077 == 0
