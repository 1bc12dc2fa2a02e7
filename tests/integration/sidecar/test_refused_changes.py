"""Changes that the admin API refuses: what it says, and that nothing came of them."""

from __future__ import annotations

from tokenweir.config import load


async def test_wrong_values_are_named_with_an_example_and_change_nothing(
    write_config, start_sidecar, store, engines
):
    url = engines().url
    path = write_config("one", backends=[{"id": "a", "url": url}])
    http = (await start_sidecar(path)).http

    async def refused(method, where, body, status):
        answer = await http.request(method, where, json=body)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        return error["message"] + " " + " ".join(error["problems"])

    assert "http://" in await refused("POST", "/api/backends", {"url": "10.0.0.1:8000"}, 422)
    assert "`url`" in await refused("POST", "/api/backends", {}, 422)
    own = f"http://127.0.0.1:{load(path).listen.port}"
    assert "the gateway's own address" in await refused("POST", "/api/backends", {"url": own}, 422)
    assert "the gateway's own address" in await refused("PATCH", "/api/backends/a", {"url": own}, 422)
    assert "did you mean `weight`" in await refused(
        "POST", "/api/backends", {"url": "http://x:1", "wieght": 2}, 422
    )
    assert "No such file" in await refused(
        "POST", "/api/backends", {"url": "http://x:1", "api_key_file": "secrets/nowhere"}, 422
    )
    assert "exists" in await refused("POST", "/api/backends", {"id": "a", "url": "http://x:1"}, 409)
    assert "already" in await refused("POST", "/api/backends", {"id": "b", "url": url}, 409)
    assert "`weight`" in await refused("PATCH", "/api/backends/a", {"weight": -1}, 422)
    assert "id" in await refused("PATCH", "/api/backends/a", {"id": "z"}, 409)
    assert "the backends are: a" in await refused("PATCH", "/api/backends/zz", {"weight": 1}, 404)
    assert "the backends are: a" in await refused("POST", "/api/backends/zz/drain", None, 404)
    assert "the backends are: a" in await refused("DELETE", "/api/backends/zz", None, 404)
    for route in ("decisions", "decisions/events", "actions"):
        assert "the backends are: a" in await refused("GET", f"/api/{route}?backend=zz", None, 404)
        assert (await http.get(f"/api/{route}?backend=a")).status_code == 200
    few = await refused("GET", "/api/actions?limit=0", None, 422)
    assert "`limit`: must be greater than or equal to 1 (got '0')" in few
    assert "`limit`: a whole number is wanted" in await refused("GET", "/api/actions?limit=x", None, 422)
    assert "round_robin" in await refused("PUT", "/api/policy", {"policy": "best"}, 422)
    assert "did you mean `policy`" in await refused("PUT", "/api/policy", {"polcy": "best"}, 422)
    assert "`tls.verfy`" in await refused("POST", "/api/backends", {"url": url, "tls": {"verfy": 1}}, 422)
    assert "Content-Type: application/json" in await refused("PUT", "/api/policy", None, 422)
    assert "Content-Type: application/json" in await refused("PUT", "/api/policy", ["best"], 422)
    unreadable = await http.put(
        "/api/policy", content="{policy", headers={"Content-Type": "application/json"}
    )
    assert "the body is no JSON" in unreadable.json()["error"]["problems"][0]
    for content in (b"[" * 100_000, b'{"policy": "\xff"}'):
        broken = await http.put("/api/policy", content=content, headers={"Content-Type": "application/json"})
        assert broken.status_code == 400
        assert "UTF-8 JSON is wanted" in broken.json()["error"]["message"]
    untyped = await http.put("/api/policy", content='{"policy": "hybrid"}')
    assert "Content-Type: application/json" in untyped.json()["error"]["problems"][0]
    assert "/docs lists the routes" in (await http.get("/api/nothing")).json()["error"]["message"]
    assert "POST is not answered here, DELETE, GET, PATCH is" in await refused(
        "POST", "/api/backends/a", {}, 405
    )
    assert not path.with_name("tokenweir.state.json").exists()
    assert [row["id"] for row in (await http.get("/api/backends")).json()] == ["a"]


async def test_a_change_that_the_disk_refuses_is_not_made(write_config, start_sidecar, engines, monkeypatch):
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sidecar.store.write_atomically", full)
    answer = await sidecar.http.post("/api/backends/a/drain")
    assert answer.status_code == 507
    assert "No space left" in answer.json()["error"]["message"]
    assert await sidecar.state("a") != "draining"


async def test_a_change_that_was_refused_never_takes_effect(write_config, start_sidecar, store, engines):
    path = write_config("one", backends=[{"id": "a", "url": engines().url}])
    (path.parent / "secrets").mkdir()
    (path.parent / "elsewhere").write_text("not-for-you")
    http = (await start_sidecar(path)).http
    for body in (
        {"id": "b", "url": engines().url, "api_key_file": "secrets/b"},
        {"id": "b", "url": engines().url, "api_key_file": "elsewhere"},
        {"id": "b", "url": engines().url, "api_key_file": "/etc/hostname"},
    ):
        assert (await http.post("/api/backends", json=body)).status_code == 422
    (path.parent / "secrets/b").write_text("sk-b")
    assert (await http.post("/api/backends/a/drain")).status_code == 200
    assert (await http.post("/api/settings/reload")).status_code == 200
    assert [row["id"] for row in (await http.get("/api/backends")).json()] == ["a"]
