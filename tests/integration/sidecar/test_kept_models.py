"""The sidecar's copies of the published predictors, on a real Redis under the ACL that is shipped."""

from __future__ import annotations

import json

import pytest
import redis

from model.publication import Publication
from sidecar.learning import loops
from sidecar.learning.kept_models import CURRENT, FOLDER
from tests.integration.sidecar.conftest import PASSWORD, until


def document(version: str) -> str:
    return json.dumps({"schema": 1, "version": version, "checksum": "0" * 16, "payload": "{}"})


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(loops, "TRAINING_MS", 50)


@pytest.fixture
def publication(store, redis_server):
    return Publication(redis.Redis(port=redis_server.port, username="sidecar", password=PASSWORD, protocol=2))


@pytest.fixture
def config(write_config, engines):
    return write_config("one", backends=[{"id": "a", "url": engines().url}])


def copied(sidecar, version):
    path = sidecar.plane.state_dir / FOLDER / CURRENT
    return path.exists() and json.loads(path.read_text())["version"] == version


async def test_a_redis_that_comes_back_empty_is_given_the_models_again(
    config, start_sidecar, store, publication
):
    sidecar = await start_sidecar(config)
    publication.publish("a", document("a"), b"1234")
    publication.publish("b", document("b"), b"5678abcd")
    await until(lambda: copied(sidecar, "b"), what="the copies")
    before = publication.current()
    store.delete(*store.keys("tw:predictor:*"))
    await until(lambda: publication.current() is not None, what="the model")
    assert publication.current() == before
    service = publication.in_service()
    assert service is not None
    assert (service.version, service.seen.tobytes()) == ("b", b"5678abcd")
    assert publication.roll_back() == "a"
    told = (await sidecar.http.get("/api/predictor")).json()
    assert told["version"] in {"a", "b"}


async def test_a_sidecar_that_starts_on_an_empty_redis_brings_its_models(
    config, start_sidecar, store, publication
):
    first = await start_sidecar(config)
    publication.publish("a", document("a"))
    await until(lambda: copied(first, "a"), what="the copies")
    await first.plane.stop()
    store.delete(*store.keys("tw:predictor:*"))
    await start_sidecar(config)
    await until(lambda: publication.in_service() is not None, what="the model")


async def test_what_was_published_meanwhile_stays(config, start_sidecar, store, publication):
    first = await start_sidecar(config)
    publication.publish("a", document("a"))
    await until(lambda: copied(first, "a"), what="the copies")
    await first.plane.stop()
    store.delete(*store.keys("tw:predictor:*"))
    publication.publish("b", document("b"))
    second = await start_sidecar(config)
    await until(lambda: copied(second, "b"), what="the copies")
    assert publication.current().version == "b"


async def test_copies_of_models_that_nobody_can_go_back_to_are_removed(
    config, start_sidecar, store, publication
):
    sidecar = await start_sidecar(config)
    for number in range(9):
        publication.publish(f"v{number}", document(f"v{number}"))
    await until(lambda: copied(sidecar, "v8"), what="the copies")
    found = {path.name.split(".")[0] for path in (sidecar.plane.state_dir / FOLDER).iterdir()}
    assert found == {"current", "v3", "v4", "v5", "v6", "v7", "v8"}


async def test_a_copy_that_cannot_be_read_is_not_put_back(config, start_sidecar, store, publication):
    sidecar = await start_sidecar(config)
    publication.publish("a", document("a"))
    await until(lambda: copied(sidecar, "a"), what="the copies")
    (sidecar.plane.state_dir / FOLDER / "a.model.json").write_text("{")
    store.delete(*store.keys("tw:predictor:*"))

    async def seen_missing():
        return (await sidecar.http.get("/api/predictor")).json()["version"] is None

    await until(seen_missing, what="the sidecar sees that none is there")
    assert publication.current() is None
    publication.publish("b", document("b"))
    await until(lambda: copied(sidecar, "b"), what="the copies")
