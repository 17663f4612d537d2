"""Text out of rollouts: records and transcripts in other programs' formats."""
