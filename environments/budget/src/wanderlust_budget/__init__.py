"""Any environment under a token budget that the policy is told, or at a level of effort."""
