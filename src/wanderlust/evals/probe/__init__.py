"""Before training: does the reward pay for what nobody wants? A battery of degenerate policies finds out."""
