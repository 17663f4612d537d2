"""Games of TextArena for one seat or two."""
