"""What the admin API shows, and describes of itself."""

from __future__ import annotations

import re

from tests.integration.sidecar.conftest import backend, until


async def test_what_is_shown_hides_secrets(write_config, start_sidecar, engines):
    token = "a-token-for-this-test"
    path = write_config(
        "one",
        backends=[engines().url],
        admin={"port": 1, "token": token},
        keys=[{"id": "team", "sha256": "0" * 64}],
    )
    sidecar = await start_sidecar(path)
    assert (await sidecar.http.get("/api/settings")).status_code == 401
    answer = await sidecar.http.get("/api/settings", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    assert token not in answer.text
    assert "0" * 64 not in answer.text


async def test_decisions_and_events_say_why(write_config, start_sidecar, store, engines):
    engine = engines()
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engine.url}]))
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    engine.stop()
    await until(lambda: backend(store, "a")["state"] == "down", what="down")

    async def decisions_of_a():
        return (await sidecar.http.get("/api/decisions?limit=3&backend=a")).json()

    async def says_why():
        newest = (await decisions_of_a())[0]
        return newest["backends"][0]["reasons"][0].startswith("state: down: ")

    await until(says_why, what="the reason")
    decisions = await decisions_of_a()
    assert len(decisions) == 3
    assert decisions[0]["sequence"] > decisions[1]["sequence"]
    newest = (await sidecar.http.get("/api/decisions/events?limit=1")).json()[0]
    assert (newest["backend"], newest["before"], newest["after"]) == ("a", "ready", "down")


async def test_measured_values_come_with_age_and_source(write_config, start_sidecar, store, engines):
    engine = engines()
    engine.running = 4
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engine.url}]))
    await until(lambda: backend(store, "a").get("load") == 4, what="the load")
    view = (await sidecar.http.get("/api/backends/a")).json()
    assert view["measured"]["running"]["value"] == 4
    assert view["measured"]["running"]["source"] == "vllm"
    assert 0 <= view["measured"]["running"]["age_ms"] < 10_000
    assert view["measured"]["context"] | {"age_ms": 0} == {"value": 4096, "age_ms": 0, "source": "/v1/models"}
    assert "tensor_active" not in view["measured"]


async def test_the_api_describes_itself_and_its_metrics_can_be_scraped(
    write_config, start_sidecar, store, engines
):
    sidecar = await start_sidecar(write_config("one", backends=[{"id": "a", "url": engines().url}]))
    await until(lambda: backend(store, "a").get("state") == "ready", what="ready")
    schema = (await sidecar.http.get("/openapi.json")).json()
    for path, methods in {
        "/api/backends": {"get", "post"},
        "/api/backends/{backend_id}": {"get", "patch", "delete"},
        "/api/policy": {"get", "put"},
    }.items():
        assert methods <= set(schema["paths"][path])
    text = (await sidecar.http.get("/metrics")).text
    assert 'tokenweir_sidecar_backend_state{backend="a",state="ready"} 1.0' in text
    assert "tokenweir_sidecar_leading 1.0" in text
    cpu = float(re.search(r"^tokenweir_sidecar_cpu_seconds_total (.+)$", text, re.M)[1])
    again = (await sidecar.http.get("/metrics")).text
    assert float(re.search(r"^tokenweir_sidecar_cpu_seconds_total (.+)$", again, re.M)[1]) >= cpu > 0
    assert "tokenweir_sidecar_redis_memory_bytes" in text


async def test_the_pages_hold_no_data_and_load_nothing_from_elsewhere(write_config, start_sidecar):
    token = "a-token-for-this-test"
    sidecar = await start_sidecar(write_config("one", admin={"port": 1, "token": token}))
    for path, kind in {
        "/": "text/html",
        "/docs": "text/html",
        "/dashboard/session.js": "javascript",
        "/dashboard/api.js": "javascript",
        "/dashboard/style.css": "text/css",
        "/dashboard/fleet.js": "javascript",
    }.items():
        answer = await sidecar.http.get(path)
        assert answer.status_code == 200
        assert kind in answer.headers["content-type"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "//" not in re.sub(r"^\s*//.*$", "", answer.text, flags=re.M)
    assert (await sidecar.http.get("/openapi.json")).status_code == 401
    for path in ("/redoc", "/docs/oauth2-redirect"):
        answer = await sidecar.http.get(path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 404
    assert (await sidecar.http.get("/api/fleet")).status_code == 401


async def test_every_route_and_metric_is_in_the_documentation(write_config, start_sidecar, engines, root):
    sidecar = await start_sidecar(write_config("one", backends=[engines().url]))
    page = (root / "docs/admin-api.md").read_text()
    for path, methods in (await sidecar.http.get("/openapi.json")).json()["paths"].items():
        for method in methods:
            assert f"| `{method.upper()} {path}` |" in page, f"{method} {path}"
    for line in (await sidecar.http.get("/metrics")).text.splitlines():
        if line.startswith("# TYPE "):
            assert f"| `{line.split()[2]}` |" in page, line
