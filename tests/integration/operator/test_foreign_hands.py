"""Others edit and delete what the operator made, on a real API server."""

from __future__ import annotations

from operator_site import Site

from xdeepserve_operator.api.names import LABEL_COMPONENT
from xdeepserve_operator.runtime.resources import SERVICES
from xdeepserve_operator.runtime.store import version_of

FRONTEND = "chat-frontend"


async def test_a_service_that_others_edit_or_delete_is_made_as_it_was(here: Site) -> None:
    await here.deploy()
    await here.ready()
    made = await here.api.get(SERVICES, FRONTEND, here.namespace)
    async with here.following(SERVICES, FRONTEND) as observer:
        elsewhere = {"spec": {"selector": {LABEL_COMPONENT: "elsewhere"}}}
        edited = await here.api.patch(SERVICES, FRONTEND, elsewhere, here.namespace)
        assert edited["spec"]["selector"] != made["spec"]["selector"]
        await observer.until(
            lambda one: version_of(one) > version_of(edited) and one["spec"]["selector"] == made["spec"]["selector"],
            "as it was",
            60,
        )
        await here.api.delete(SERVICES, FRONTEND, here.namespace)
        await observer.until(
            lambda one: (
                one["metadata"]["uid"] != made["metadata"]["uid"]
                and one["spec"]["selector"] == made["spec"]["selector"]
            ),
            "there again",
            60,
        )
