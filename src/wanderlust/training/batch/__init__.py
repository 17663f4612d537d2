"""From scored groups to tensors: samples, packing, trees of shared prefixes, collation."""
