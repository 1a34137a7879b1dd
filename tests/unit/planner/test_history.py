from xdeepserve_operator.planner.history import differences, expired, number_for, restored

OLD = {"model": {"uri": "file:///a"}, "roles": [{"name": "p", "chips": ["910B"], "parallelism": {"dp": 1}}]}
NEW = {"model": {"uri": "file:///b"}, "roles": [{"name": "p", "chips": ["910B"], "parallelism": {"dp": 2}}]}


def test_numbers_only_grow() -> None:
    assert number_for("a", {}) == 1
    assert number_for("a", {"a": 1}) == 1
    assert number_for("b", {"a": 1}) == 2
    assert number_for("a", {"a": 1, "b": 2}) == 3, "what comes back is the newest"


def test_the_oldest_are_forgotten() -> None:
    assert expired({"a": 4, "b": 2, "c": 3}, 2) == ["b"]
    assert expired({"a": 4}, 2) == []


def test_going_back_restores_what_the_revision_holds_and_nothing_else() -> None:
    spec = {
        "model": {"uri": "file:///b"},
        "roles": [
            {"name": "p", "chips": ["910B"], "parallelism": {"dp": 2}, "replicas": 7},
            {"name": "d", "replicas": 1},
        ],
        "frontend": {"replicas": 3},
    }
    back = restored(spec, OLD)
    assert back == {
        "model": {"uri": "file:///a"},
        "roles": [
            {"name": "p", "chips": ["910B"], "parallelism": {"dp": 1}, "replicas": 7},
            {"name": "d", "replicas": 1},
        ],
        "frontend": {"replicas": 3},
    }
    assert spec["model"] == {"uri": "file:///b"}, "the given spec is left alone"


def test_differences_are_told_by_path() -> None:
    assert differences(OLD, NEW) == [
        ("model.uri", "file:///a", "file:///b"),
        ("roles[p].parallelism.dp", 1, 2),
    ]
    assert differences(OLD, OLD) == []
    grown = {**OLD, "roles": [*OLD["roles"], {"name": "d", "chips": ["910C"]}]}
    assert differences(OLD, grown) == [("roles[d].chips", None, ["910C"])]
