"""Planted reward hacks: environments whose flaw is known, and sound ones, to measure probes and monitors on.

Families (a flawed environment and its mended twin, or a sound one alone) are put in order by name within each kind;
the first, third, fifth ... are `dev`, the others `held_out`. Whoever writes a probe or a monitor reads `dev` alone;
only figures are taken from `held_out`.
"""
