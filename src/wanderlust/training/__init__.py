"""From scored groups to a better policy: advantage, samples, batch, loss, update."""
