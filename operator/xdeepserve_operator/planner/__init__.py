"""Pure decisions: placement, gangs, membership, recovery. The clock is an argument."""
