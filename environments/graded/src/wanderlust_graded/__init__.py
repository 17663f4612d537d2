"""Data files of OpenAI's reinforcement fine-tuning, with their graders, as environments."""
