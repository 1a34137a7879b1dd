"""One die of two, run as a program in a network namespace of its own: `python xccl_far_die.py RANK DIRECTORY`.

It joins, votes until the link breaks, waits for a line on standard input, joins the next epoch and votes again; what
it sees goes to standard output, a line each.
"""

from __future__ import annotations

import sys
import time

from xccl import Endpoint, Group, Layout, LinkBroken, Network, Peer, PeerLost, run

HOSTS = ("10.77.0.1", "10.77.0.2")
PORT = 9002
LAYOUT = Layout(max_peers=2, max_tokens=1, hidden=1, top_k=1)
PATIENCE = 20.0


def join(endpoint: Endpoint, rank: int, epoch: int, directories: str) -> Group:
    peers = [Peer(r, f"die-{r}", f"shm://{directories}-{r}/die-{r}?tcp={host}:{PORT}") for r, host in enumerate(HOSTS)]
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return run(Group.join(endpoint, epoch=epoch, rank=rank, peers=peers), timeout=PATIENCE)
        except PeerLost:  # not there yet, or the link is still down
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def main(rank: int, directories: str) -> None:
    network = Network(bytes(16), HOSTS[rank], PORT, silence=0.3)
    with Endpoint.create(f"{directories}-{rank}", f"die-{rank}", LAYOUT, network=network) as endpoint:
        group = join(endpoint, rank, 1, directories)
        print("voted", *run(group.vote(rank), timeout=PATIENCE), flush=True)
        try:
            while True:
                run(group.vote(rank), timeout=PATIENCE)
        except LinkBroken as broken:
            print(broken.code, flush=True)
        sys.stdin.readline()
        group = join(endpoint, rank, 2, directories)
        print("voted", *run(group.vote(rank + 5), timeout=PATIENCE), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
