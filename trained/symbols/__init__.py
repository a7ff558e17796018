"""Template tasks on unseen symbols: tasks, models and training of the symbols study."""
