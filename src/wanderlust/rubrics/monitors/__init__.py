"""While training: is the reward being gamed? Small pure functions over what each step's rollouts were like.

What they do not cover: a hack from the very first step has no honest baseline to differ from (`wander probe` is for
that), and a gap to a hidden figure is only seen where somebody measures one.
"""
