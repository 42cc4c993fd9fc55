"""One worker a library: each runs in an environment that holds that library, and talks JSON over its pipes."""
