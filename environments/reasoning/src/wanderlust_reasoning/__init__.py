"""The data sets of reasoning-gym, and a recipe that trains a reasoner on many of them at once."""
