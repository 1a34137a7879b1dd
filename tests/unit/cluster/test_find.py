"""Where commands are looked for, and which copies are passed over."""

from __future__ import annotations

from xdeepserve_cluster.binaries.cache import cached_path
from xdeepserve_cluster.binaries.catalog import TOOLS
from xdeepserve_cluster.binaries.find import find

from .machine import Machine

ETCD, KUBECTL = TOOLS["etcd"], TOOLS["kubectl"]
RIGHT = "echo etcd Version: 3.6.1"


def test_the_named_directory_comes_first_then_the_path_then_the_cache(machine: Machine) -> None:
    cached = cached_path(ETCD, machine.environ)
    cached.parent.mkdir(parents=True)
    cached.write_text("")
    assert find(ETCD, machine.environ, machine.progress) == cached
    on_path = machine.script("path/etcd", RIGHT)
    assert find(ETCD, machine.environ, machine.progress) == on_path
    named = machine.script("assets/etcd", RIGHT)
    assert find(ETCD, machine.environ, machine.progress) == named


def test_nothing_anywhere(machine: Machine) -> None:
    assert find(ETCD, machine.environ, machine.progress) is None


def test_a_copy_of_another_minor_is_passed_over_with_a_word(machine: Machine) -> None:
    machine.script("assets/etcd", "echo etcd Version: 3.4.23")
    on_path = machine.script("path/etcd", RIGHT)
    assert find(ETCD, machine.environ, machine.progress) == on_path
    assert "is 3.4.23, wanted is 3.6; passed over" in machine.printed.getvalue()


def test_an_unfit_copy_on_the_path_is_not_worth_a_word_when_the_cache_has_a_fit_one(machine: Machine) -> None:
    cached = cached_path(ETCD, machine.environ)
    cached.parent.mkdir(parents=True)
    cached.write_text("")
    machine.script("path/etcd", "echo etcd Version: 3.4.23")
    assert find(ETCD, machine.environ, machine.progress) == cached
    assert machine.printed.getvalue() == ""
    machine.script("assets/etcd", "echo etcd Version: 3.4.23")
    assert find(ETCD, machine.environ, machine.progress) == cached
    assert "KUBEBUILDER_ASSETS:" in machine.printed.getvalue()


def test_a_copy_that_does_not_run_is_passed_over(machine: Machine) -> None:
    machine.script("assets/etcd", "exit 1")
    machine.script("path/etcd", "").write_text("not a program")
    assert find(ETCD, machine.environ, machine.progress) is None
    assert "does not tell its version" in machine.printed.getvalue()
    assert "does not run" in machine.printed.getvalue()


def test_kubectl_may_be_one_minor_away(machine: Machine) -> None:
    neighbour = machine.script("path/kubectl", "echo Client Version: v1.35.2")
    assert find(KUBECTL, machine.environ, machine.progress) == neighbour
    machine.script("path/kubectl", "echo Client Version: v1.28.2")
    assert find(KUBECTL, machine.environ, machine.progress) is None


def test_the_cache_is_where_the_user_says(machine: Machine) -> None:
    elsewhere = {**machine.environ, "XDG_CACHE_HOME": str(machine.root / "elsewhere")}
    assert cached_path(ETCD, elsewhere).is_relative_to(machine.root / "elsewhere" / "xdeepserve" / "bin")
    assert cached_path(ETCD, machine.environ).is_relative_to(machine.root / "home" / ".cache" / "xdeepserve")
