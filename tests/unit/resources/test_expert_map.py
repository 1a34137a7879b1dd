"""ConfigMaps of an instance's map."""

from xdeepserve_operator.resources.expert_map import map_config_maps, map_name


def test_names_fit_and_maps_go_with_their_placement() -> None:
    owner = {"metadata": {"name": "p" * 46, "namespace": "n", "uid": "u"}}
    first, second = map_config_maps(owner, 1023, ["a", "b"])
    assert first["metadata"]["name"] == map_name("p" * 46, 1023)
    assert second["metadata"]["name"] == map_name("p" * 46, 1023, 1)
    assert len(map_name("p" * 46, 1023, 63)) <= 63
    assert first["data"] == {"map.json": "a"}
    assert first["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert first["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "xdeepserve"
