"""What is trained: tasks, small models, training, stored runs and the zoo."""
