"""The paper's table: tasks times methods, each run stored as one line, printed beside the numbers in print."""
