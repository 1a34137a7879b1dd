"""Writes: only when something changes, never without the Lease, foreign edits undone, answers visible at once."""

import pytest

from xdeepserve_operator.runtime.events import EventWriter
from xdeepserve_operator.runtime.store import Store
from xdeepserve_operator.runtime.writer import NotLeader, Writer, holds

from .fake_api import FakeApi

BODY = {"metadata": {"name": "g", "namespace": "n"}, "spec": {"node": "s0", "items": [{"a": 1}]}}
KEY = ("dpgroups", "n", "g")


@pytest.fixture
def world():
    api, store = FakeApi(), Store()
    leading = {"now": True}
    writer = Writer(api, store, EventWriter(api), lambda: leading["now"])
    return api, store, writer, leading


async def test_the_same_body_is_written_once(world):
    api, store, writer, _ = world
    first = await writer.apply("DPGroup", BODY)
    assert store.get("DPGroup", "n", "g").items() >= first.items()
    await writer.apply("DPGroup", BODY)
    assert api.calls == ["apply"]


async def test_a_foreign_edit_is_undone(world):
    api, store, writer, _ = world
    await writer.apply("DPGroup", BODY)
    edited = api._store(KEY, {**api.objects[KEY], "spec": {"node": "elsewhere", "items": [{"a": 1}]}}, {})
    store.put("DPGroup", edited)
    await writer.apply("DPGroup", BODY)
    assert api.objects[KEY]["spec"]["node"] == "s0"


async def test_another_spelling_in_the_server_causes_no_write_storm(world, monkeypatch):
    api, _store, writer, _ = world
    plain = api.apply

    async def normalising(resource, body, **options):
        return await plain(resource, {**body, "spec": {**body["spec"], "node": "S0"}}, **options)

    monkeypatch.setattr(api, "apply", normalising)
    await writer.apply("DPGroup", BODY)
    await writer.apply("DPGroup", BODY)
    assert api.calls == ["apply"]


async def test_an_answer_about_an_object_that_is_gone_is_not_remembered(world, monkeypatch):
    """The watch tells that it is gone, and to forget it, before the answer to the write arrives."""
    api, store, writer, _ = world
    obj = await writer.apply("DPGroup", BODY)
    plain = api.apply

    async def late(resource, body, **options):
        stored = await plain(resource, body, **options)
        store.remove("DPGroup", obj)
        writer.forget(obj["metadata"]["uid"])
        return stored

    monkeypatch.setattr(api, "apply", late)
    await writer.update_status("DPGroup", obj, {"epoch": 1})
    assert not writer._written


async def test_a_status_of_a_vanished_object_is_dropped(world):
    api, _store, writer, _ = world
    obj = await writer.apply("DPGroup", BODY)
    del api.objects[KEY]
    await writer.update_status("DPGroup", obj, {"epoch": 1})
    assert KEY not in api.objects


async def test_status_is_written_on_change_only(world):
    api, _store, writer, _ = world
    obj = await writer.apply("DPGroup", BODY)
    for epoch in (1, 1, 2):
        await writer.update_status("DPGroup", obj, {"epoch": epoch})
    assert api.calls == ["apply"] * 3


async def test_nothing_is_sent_without_the_lease(world):
    api, _store, writer, leading = world
    obj = await writer.apply("DPGroup", BODY)
    leading["now"] = False
    for write in (
        lambda: writer.apply("DPGroup", {**BODY, "spec": {}}),
        lambda: writer.create("Pod", BODY),
        lambda: writer.update_status("DPGroup", obj, {"epoch": 3}),
        lambda: writer.scale(obj, 2),
        lambda: writer.delete("DPGroup", obj),
    ):
        with pytest.raises(NotLeader):
            await write()
    assert api.calls == ["apply"]


async def test_creating_what_exists_returns_what_is_there(world):
    _api, _store, writer, _ = world
    first = await writer.create("Pod", BODY)
    second = await writer.create("Pod", {**BODY, "spec": {"other": True}})
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert second["spec"] == BODY["spec"]


@pytest.mark.parametrize(
    ("wanted", "actual", "expected"),
    [
        ({"a": 1}, {"a": 1, "default": 2}, True),
        ({"a": [{"x": 1}]}, {"a": [{"x": 1, "default": 0}]}, True),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": 1}, {}, False),
        ({"a": {"b": 1}}, {"a": "text"}, False),
        ([], None, False),
    ],
)
def test_holds(wanted, actual, expected):
    assert holds(wanted, actual) is expected
