"""The store: newest life wins, the deleted stay deleted, reads by indexed label touch only the matches."""

from hypothesis import given
from hypothesis import strategies as st

from xdeepserve_operator.api.names import LABEL_COMPONENT, LABEL_DEPLOYMENT, LABEL_EXECUTOR
from xdeepserve_operator.runtime.store import TOMBSTONE_SECONDS, Store


def pod(name: str, version: int, *, uid: str = "u", executor: str = "", namespace: str = "a") -> dict:
    labels = {LABEL_EXECUTOR: executor} if executor else {}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": labels,
        }
    }


def test_an_older_version_is_no_news():
    store = Store()
    assert store.put("Pod", pod("p", 5))
    assert not store.put("Pod", pod("p", 4))
    assert not store.put("Pod", pod("p", 5))
    assert store.get("Pod", "a", "p") == pod("p", 5)


def test_a_late_answer_does_not_raise_the_dead():
    store = Store()
    store.put("Pod", pod("p", 5, uid="first"))
    assert store.remove("Pod", pod("p", 6, uid="first"))
    assert not store.put("Pod", pod("p", 9, uid="first"))
    assert store.get("Pod", "a", "p") is None
    assert store.put("Pod", pod("p", 10, uid="second"))


def test_the_dead_are_remembered_as_long_as_an_answer_may_be_late():
    now = 0.0
    store = Store(monotonic=lambda: now)
    for number in range(1000):
        now += 1.0
        store.remove("Pod", pod("p", 5, uid=str(number)))
    assert not store.put("Pod", pod("p", 9, uid=str(number - 100)))
    assert len(store._deleted) <= TOMBSTONE_SECONDS + 1


def test_the_end_of_an_earlier_life_leaves_the_present_one():
    store = Store()
    store.put("Pod", pod("p", 10, uid="second"))
    assert not store.remove("Pod", pod("p", 6, uid="first"))
    assert store.get("Pod", "a", "p") is not None


def test_all_news_is_heard_and_nothing_else():
    heard = []
    store = Store(lambda kind, obj: heard.append((kind, obj["metadata"]["resourceVersion"])))
    store.put("Pod", pod("p", 5))
    store.put("Pod", pod("p", 5))
    store.put("Pod", pod("p", 6))
    store.remove("Pod", pod("p", 7))
    store.remove("Pod", pod("p", 7))
    assert heard == [("Pod", "5"), ("Pod", "6"), ("Pod", "7")]


def test_lists_are_ordered_and_filtered():
    store = Store()
    store.put("Pod", pod("b", 1, uid="1", executor="x"))
    store.put("Pod", pod("a", 2, uid="2", executor="x"))
    store.put("Pod", pod("c", 3, uid="3", executor="y"))
    store.put("Pod", pod("d", 4, uid="4", executor="x", namespace="b"))
    names = [obj["metadata"]["name"] for obj in store.list("Pod", "a", {LABEL_EXECUTOR: "x"})]
    assert names == ["a", "b"]
    assert len(store.list("Pod", labels={LABEL_EXECUTOR: "x"})) == 3
    assert store.list("Node") == []


class _Counted(dict[str, str]):
    """Labels that count how often they are looked at."""

    looks = 0

    def items(self):
        type(self).looks += 1
        return super().items()


def test_a_list_by_several_labels_looks_at_the_matches_of_the_rarest_only():
    store = Store()
    for number in range(200):
        component = "frontend" if number == 7 else "engine"
        obj = pod(f"p{number}", 1, uid=str(number))
        obj["metadata"]["labels"] = _Counted({LABEL_DEPLOYMENT: "chat", LABEL_COMPONENT: component})
        store.put("Pod", obj)
    _Counted.looks = 0
    found = store.list("Pod", "a", {LABEL_DEPLOYMENT: "chat", LABEL_COMPONENT: "frontend"})
    assert [one["metadata"]["name"] for one in found] == ["p7"]
    assert _Counted.looks == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "remove"]),
            st.sampled_from("pqr"),
            st.integers(1, 30),
            st.sampled_from(["x", "y", ""]),
        ),
        max_size=60,
    )
)
def test_the_index_always_agrees_with_a_scan(steps):
    store, lives = Store(), dict.fromkeys("pqr", 0)
    for action, name, version, executor in steps:
        obj = pod(name, version, uid=f"{name}{lives[name]}", executor=executor)
        if action == "put":
            store.put("Pod", obj)
        elif store.remove("Pod", obj):
            lives[name] += 1
        for value in "xy":
            indexed = store.list("Pod", "a", {LABEL_EXECUTOR: value})
            scanned = [o for o in store.list("Pod") if o["metadata"]["labels"].get(LABEL_EXECUTOR) == value]
            assert indexed == scanned
