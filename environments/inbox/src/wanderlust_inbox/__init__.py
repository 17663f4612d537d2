"""Questions over an inbox of thousands of mails, generated or one's own, for an agent that searches and reads."""
