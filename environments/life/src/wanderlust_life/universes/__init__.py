"""Universes: people with a life, made from seeds, whose mails, chats, dates, orders and files agree with each other."""
