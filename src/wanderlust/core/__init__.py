"""The nouns and the contracts. Standard library only; imports nothing of ours."""
