"""Grid games that the agent has to find out: rules, levels, players and the official games."""
