"""Short answers for agents, whose context is limited: the tools of a server, and a skill."""
